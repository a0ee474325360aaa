/**
 * The virtual servers of IPVS: their names as arguments of `ipvsadm`, `/proc/net/ip_vs`, and whose they
 * are. Pure.
 *
 * The file is much cheaper to have than what `ipvsadm` prints, which asks the kernel once for each
 * server, and the only text with the numbers of connections for all of them:
 *
 * ```
 * Prot LocalAddress:Port Scheduler Flags
 *   -> RemoteAddress:Port Forward Weight ActiveConn InActConn
 * TCP  0A600001:01BB rr persistent 1080000 FFFFFFFF
 *   -> 0A010102:192B      Masq    1      3          0
 * TCP  [fd00:0096:0000:0000:0000:0000:0000:0001]:01BB rr
 * FWM  00000007 wlc
 * ```
 *
 * Flags of the scheduler are not in it, and times are in ticks of the kernel. Servers by firewall mark
 * are left out: neither kube-proxy nor kube-relay makes one.
 *
 * @module
 */
import { type Cidr, cidrContains } from "../../lib/net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort, type Protocol } from "../../lib/net/port.ts";
import { isKubeProxySet } from "./foreign/owners.ts";
import type { SavedSet } from "./ipset/ipset_text.ts";

/** The file that lists them: only while ip_vs is loaded, and those of one network namespace. */
export const IP_VS_FILE = "/proc/net/ip_vs";

/**
 * Identifies a virtual server, as an argument of `ipvsadm`: `-t 10.96.0.1:443`, `-u [fd00::1]:53`,
 * `--sctp-service …`. One server has one key.
 */
export type ServerKey = string & { readonly __brand: "ServerKey" };

/** Identifies a real server within a virtual one: `10.0.0.1:8080`, `[fd00::1]:8080`. */
export type RealServerKey = string & { readonly __brand: "RealServerKey" };

/** The address and port of a virtual server. */
export interface ServerAddress {
  readonly protocol: Protocol;
  readonly address: IpAddress;
  /** 0 = all ports, which only a persistent server of another program may have. */
  readonly port: number;
}

/** A real server with its connections. */
export interface SeenRealServer {
  readonly key: RealServerKey;
  /** Whether its destination is changed, as this mode does it. */
  readonly isMasqueraded: boolean;
  /** Whether packets are sent in IP in IP, for direct server return. @default {false} */
  readonly isTunnelled?: true;
  /** 0 = gets no new connections. */
  readonly weight: number;
  /** Established connections. */
  readonly active: number;
  /** All others that are remembered: half open, or closed a moment ago. */
  readonly inactive: number;
}

/** A virtual server as read from the kernel. */
export interface SeenServer extends ServerAddress {
  readonly key: ServerKey;
  /** Scheduler and persistence as arguments of `ipvsadm`, but in ticks: `-s rr -p 1080000 ticks`. */
  readonly setup: string;
  readonly reals: readonly SeenRealServer[];
}

const FLAGS: Readonly<Record<Protocol, string>> = {
  TCP: "-t",
  UDP: "-u",
  SCTP: "--sctp-service",
};
const ADDRESS = String.raw`(?:([0-9A-F]{8})|\[([0-9a-fA-F:]+)\]):([0-9A-F]{4})`;
const SERVER = new RegExp(
  String.raw`^(TCP|UDP|SCTP)\s+${ADDRESS}\s+([\w-]+)(\s+ops\b)?(?:\s+persistent (\d+))?`,
);
const REAL = new RegExp(String.raw`^\s+->\s+${ADDRESS}\s+(\w+)\s+(\d+)\s+(\d+)\s+(\d+)`);
/** Whole ticks in a second, as kernels are built. */
const TICKS: readonly number[] = [100, 250, 300, 1_000];

/** The key of a virtual server by its address. */
export function serverKey({ protocol, address, port }: ServerAddress): ServerKey {
  return `${FLAGS[protocol]} ${formatHostPort(address, port)}` as ServerKey;
}

/** For a person: `10.96.0.1:443/TCP`. */
export function describeServer(key: ServerKey): string {
  const [flag, hostPort] = key.split(" ");
  return `${hostPort}/${flag === "-t" ? "TCP" : flag === "-u" ? "UDP" : "SCTP"}`;
}

/** Whether connections of a virtual server have an end worth waiting for. */
export function isDrained(server: ServerKey): boolean {
  // A client of UDP has to be sent elsewhere at once, and so it is with SCTP in kube-proxy.
  return server.startsWith("-t ");
}

/** Reads the file in short steps. Lines that make no sense are skipped. */
export function* readVirtualServers(text: string): Generator<void, SeenServer[]> {
  const servers: SeenServer[] = [];
  let reals: SeenRealServer[] = [];
  for (const line of text.split("\n")) {
    yield;
    const [, real4, real6, realPort = "", forward, weight, active, inactive] = REAL.exec(line) ??
      [];
    const real = addressOf(real4, real6);
    if (real !== undefined) {
      reals.push({
        key: formatHostPort(real, parseInt(realPort, 16)) as RealServerKey,
        isMasqueraded: forward === "Masq",
        ...(forward === "Tunnel" && { isTunnelled: true }),
        weight: Number(weight),
        active: Number(active),
        inactive: Number(inactive),
      });
      continue;
    }
    // Real servers after an unreadable virtual server must not be added to the previous one.
    reals = [];
    const [, protocol, v4, v6, port = "", scheduler, ops, ticks] = SERVER.exec(line) ?? [];
    const address = addressOf(v4, v6);
    if (address === undefined) continue;
    const server = { protocol: protocol as Protocol, address, port: parseInt(port, 16) };
    const persistence = ticks === undefined ? "" : ` -p ${ticks} ticks`;
    const setup = `-s ${scheduler}${ops ? " -o" : ""}${persistence}`;
    servers.push({ ...server, key: serverKey(server), setup, reals });
  }
  return servers;
}

/** Whether a setup as it was seen can be this one: the length of a tick is unknown, and so are flags. */
export function isSameSetup(seen: string, wanted: string): boolean {
  const [, setup, ticks] = /^(.*?)(?: -p (\d+) ticks)?$/.exec(seen) ?? [];
  const [, wantedSetup, seconds] = /^(-s \S+)(?: -p (\d+))?/.exec(wanted) ?? [];
  if (setup !== wantedSetup || ticks === undefined || seconds === undefined) {
    return setup === wantedSetup && ticks === seconds;
  }
  return TICKS.includes(Number(ticks) / Number(seconds));
}

/** IPv4 as eight digits, IPv6 as usual. */
function addressOf(v4: string | undefined, v6 = ""): IpAddress | undefined {
  if (v4 === undefined) return tryParseIpAddress(v6);
  const octets = [0, 2, 4, 6].map((at) => parseInt(v4.slice(at, at + 2), 16));
  return tryParseIpAddress(octets.join("."));
}

/** The facts that identify virtual servers of kube-proxy or of mode ipvs. */
export interface ServerOwnership {
  /** The owners by the sets of kube-proxy. */
  readonly noted: NotedServers;
  /** Addresses on the device `kube-ipvs0`. */
  readonly deviceAddresses: ReadonlySet<IpAddress>;
  /** The node's own addresses, where its node ports are; for mode ipvs, with those that it has lost. */
  readonly nodeAddresses: ReadonlySet<string>;
  /** `ipvs.excludeCIDRs`: servers of other software. */
  readonly excludeCidrs: readonly Cidr[];
}

/** Whether kube-proxy or mode ipvs created a virtual server. */
export function isOwnServer(
  { protocol, address, port }: ServerAddress,
  { noted, deviceAddresses, nodeAddresses, excludeCidrs }: ServerOwnership,
): boolean {
  if (excludeCidrs.some((cidr) => cidrContains(cidr, address))) return false;
  const name = protocol.toLowerCase();
  return deviceAddresses.has(address) || noted.addresses.has(address) ||
    noted.exact.has(exactKey(name, address, port)) ||
    (nodeAddresses.has(address) && noted.nodePorts.has(`${name} ${port}`));
}

/** The virtual servers that sets record. */
export interface NotedServers {
  /** Every port of these. */
  readonly addresses: ReadonlySet<IpAddress>;
  /** These, each as its protocol, address and port. */
  readonly exact: ReadonlySet<string>;
  /** These ports on addresses of the node, as `tcp 30080`. */
  readonly nodePorts: ReadonlySet<string>;
}

function exactKey(protocol: string, address: IpAddress, port: number): string {
  return `${protocol} ${address} ${port}`;
}

/** Reads the sets of kube-proxy in short steps; other sets are skipped. */
export function* notedServers(sets: ReadonlyMap<string, SavedSet>): Generator<void, NotedServers> {
  const addresses = new Set<IpAddress>();
  const exact = new Set<string>();
  const nodePorts = new Set<string>();
  for (const [name, { entries }] of sets) {
    if (!isKubeProxySet(name)) continue;
    const set = name.replace(/^KUBE-(6-)?/, "");
    const nodePort = /^NODE-PORT-(TCP|UDP)$/.exec(set)?.[1]?.toLowerCase();
    const isOfServices = set.startsWith("NODE-PORT-SCTP") ||
      ["CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER"].includes(set);
    for (const entry of entries) {
      yield;
      if (nodePort !== undefined) nodePorts.add(`${nodePort} ${entry}`);
      const [addressText = "", service = ""] = entry.split(",");
      const address = tryParseIpAddress(addressText);
      if (address === undefined) continue;
      if (set === "IPVS-IPS") addresses.add(address);
      const [protocol, port] = service.split(":");
      if (isOfServices && port !== undefined) exact.add(exactKey(protocol!, address, Number(port)));
    }
  }
  return { addresses, exact, nodePorts };
}
