/**
 * Virtual servers and real servers of IPVS as values, and their names as arguments of `ipvsadm`.
 * Pure.
 *
 * @module
 */
import type { IpAddress } from "../../lib/net/ip_address.ts";
import { tryParseIpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Protocol } from "../../lib/net/port.ts";

/**
 * Identifies a virtual server, as an argument of `ipvsadm`: `-t 10.96.0.1:443`, `-u [fd00::1]:53`,
 * `--sctp-service …`, or `-f 7` and `-f 7 -6` for a firewall mark. One server has one key.
 */
export type ServerKey = string & { readonly __brand: "ServerKey" };

/** Identifies a real server within a virtual one: `10.0.0.1:8080`, `[fd00::1]:8080`. */
export type RealServerKey = string & { readonly __brand: "RealServerKey" };

/** An address and port that the kernel distributes connections from. */
export interface VirtualServer {
  readonly key: ServerKey;
  readonly scheduler: string;
  /** Flags of the scheduler, as `mh-port`; sorted, each once. */
  readonly flags: readonly string[];
  /** Time for which a client stays with its real server, seconds; `undefined` = none. */
  readonly persistenceSeconds?: number;
  /** The part of a client's address that is remembered; `undefined` = all of it. */
  readonly persistenceMask?: string;
  /** `-o`: each UDP packet is a connection of its own. This mode never sets it. */
  readonly isOnePacket?: true;
}

/** The forwarding method of a real server. This mode masquerades: it changes the destination. */
export type Forwarding = "masquerade" | "route" | "tunnel";

/** An endpoint of a virtual server. */
export interface RealServer {
  readonly key: RealServerKey;
  readonly forwarding: Forwarding;
  /** 0 = gets no new connections. */
  readonly weight: number;
}

/** The address and port of a virtual server without a firewall mark. */
interface ServerAddress {
  readonly protocol: Protocol;
  readonly address: IpAddress;
  /** 0 = all ports, which only a persistent server of another program may have. */
  readonly port: number;
}

const FLAG_OF: Readonly<Record<Protocol, string>> = {
  TCP: "-t",
  UDP: "-u",
  SCTP: "--sctp-service",
};

const PROTOCOL_OF: ReadonlyMap<string, Protocol> = new Map([
  ["-t", "TCP"],
  ["--tcp-service", "TCP"],
  ["-u", "UDP"],
  ["--udp-service", "UDP"],
  ["--sctp-service", "SCTP"],
]);

/** The largest firewall mark. */
const MAX_MARK = 0xffff_ffff;

/** The key of a virtual server by its address. */
export function serverKey({ protocol, address, port }: ServerAddress): ServerKey {
  return `${FLAG_OF[protocol]} ${formatHostPort(address, port)}` as ServerKey;
}

/** The key of a virtual server by a firewall mark. */
export function markKey(mark: number, isIpv6: boolean): ServerKey {
  return `-f ${mark}${isIpv6 ? " -6" : ""}` as ServerKey;
}

/** The key of a real server. */
export function realServerKey(address: IpAddress, port: number): RealServerKey {
  return formatHostPort(address, port) as RealServerKey;
}

/**
 * Returns scheduler, flags and persistence of a server as arguments of `ipvsadm`. Two servers of one
 * key are equal if these are. Without `-p` an edit ends persistence; without `-b` it removes flags.
 */
export function setupText(server: Omit<VirtualServer, "key">): string {
  const { scheduler, flags, persistenceSeconds, persistenceMask, isOnePacket } = server;
  let words = `-s ${scheduler}`;
  if (isOnePacket) words += " -o";
  if (persistenceSeconds !== undefined) {
    words += ` -p ${persistenceSeconds}`;
    if (persistenceMask !== undefined) words += ` -M ${persistenceMask}`;
  }
  if (flags.length > 0) words += ` -b ${flags.join(",")}`;
  return words;
}

/** The line that adds or edits a real server, for `ipvsadm -R`. */
export function realLine(
  verb: "-a" | "-e",
  server: ServerKey,
  real: string,
  weight: 0 | 1,
): string {
  return `${verb} ${server} -r ${real} -m -w ${weight}`;
}

/** Returns the address and port of a server; `undefined` = it has a firewall mark. */
export function addressOfServer(key: ServerKey): ServerAddress | undefined {
  const [flag = "", hostPort = ""] = key.split(" ", 2);
  const protocol = PROTOCOL_OF.get(flag);
  const found = tryParseHostPort(hostPort);
  return protocol && found && { protocol, ...found };
}

/** Whether connections of a virtual server have an end worth waiting for. */
export function isDrained(server: ServerKey): boolean {
  // A client of UDP has to be sent elsewhere at once, and so it is with SCTP in kube-proxy.
  return server.startsWith("-t ");
}

/** Reads the option that names a server and its value; `undefined` = it names none. */
export function tryParseServer(
  flag: string,
  value: string,
  { isIpv6 = false }: { readonly isIpv6?: boolean } = {},
): ServerKey | undefined {
  if (flag === "-f" || flag === "--fwmark-service") {
    const mark = /^\d{1,10}$/.test(value) ? Number(value) : 0;
    return mark >= 1 && mark <= MAX_MARK ? markKey(mark, isIpv6) : undefined;
  }
  const protocol = PROTOCOL_OF.get(flag);
  const found = tryParseHostPort(value);
  return protocol && found && serverKey({ protocol, ...found });
}

/** For a person: `10.96.0.1:443/TCP`, `mark 7`. */
export function describeServer(key: ServerKey): string {
  const [flag = "", value = ""] = key.split(" ", 2);
  const protocol = PROTOCOL_OF.get(flag);
  return protocol === undefined ? `mark ${value}` : `${value}/${protocol}`;
}

function tryParseHostPort(
  text: string,
): { readonly address: IpAddress; readonly port: number } | undefined {
  const [, bracketed, plain = "", digits = ""] =
    /^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):(\d{1,5})$/.exec(text) ?? [];
  const address = tryParseIpAddress(bracketed ?? plain);
  const port = Number(digits);
  if (address === undefined || digits === "" || port > 65_535) return undefined;
  return { address, port };
}
