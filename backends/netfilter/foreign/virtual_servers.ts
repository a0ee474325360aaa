import type { Cidr } from "../../../lib/net/cidr.ts";
import { cidrContains } from "../../../lib/net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import { formatHostPort } from "../../../lib/net/port.ts";
import type { SavedSet } from "../ipset/ipset_text.ts";
import { isKubeProxySet } from "./owners.ts";

/** The file that lists them: only while ip_vs is loaded, and those of one network namespace. */
export const IP_VS_FILE = "/proc/net/ip_vs";

/** A virtual server. Servers by firewall mark are left out, because kube-proxy creates none. */
export interface VirtualServer {
  readonly protocol: "tcp" | "udp" | "sctp";
  readonly address: IpAddress;
  readonly port: number;
}

const SERVER = /^(TCP|UDP|SCTP)\s+(?:([0-9A-F]{8})|\[([0-9a-fA-F:]+)\]):([0-9A-F]{4}) (.*)$/;

/** Reads `/proc/net/ip_vs` in short steps. Addresses and ports are in hexadecimal. */
export function* readVirtualServers(text: string): Generator<void, VirtualServer[]> {
  const servers: VirtualServer[] = [];
  for (const line of text.split("\n")) {
    yield;
    const server = tryParseServerLine(line)?.server;
    if (server) servers.push(server);
  }
  return servers;
}

/** Reads the line of a virtual server, and returns the scheduler and flags as `setup`. */
export function tryParseServerLine(
  line: string,
): { readonly server: VirtualServer; readonly setup: string } | undefined {
  const [, protocol, v4, v6, port = "", setup = ""] = SERVER.exec(line) ?? [];
  const address = addressOf(v4, v6);
  if (protocol === undefined || address === undefined) return undefined;
  const server = {
    protocol: protocol.toLowerCase() as VirtualServer["protocol"],
    address,
    port: parseInt(port, 16),
  };
  return { server, setup };
}

/** An address of that file: IPv4 as eight digits, IPv6 as usual. */
export function addressOf(v4: string | undefined, v6 = ""): IpAddress | undefined {
  if (v4 === undefined) return tryParseIpAddress(v6);
  const octets = [0, 2, 4, 6].map((at) => parseInt(v4.slice(at, at + 2), 16));
  return tryParseIpAddress(octets.join("."));
}

/** The facts that identify kube-proxy's virtual servers. */
export interface ServerOwnership {
  /** The owners by kube-proxy's sets. */
  readonly noted: NotedServers;
  /** Addresses on its device `kube-ipvs0`. */
  readonly deviceAddresses: ReadonlySet<IpAddress>;
  /** The node's own addresses, where its node ports are. */
  readonly nodeAddresses: ReadonlySet<IpAddress>;
  /** `ipvs.excludeCIDRs`: servers of other software. */
  readonly excludeCidrs: readonly Cidr[];
}

/** Whether kube-proxy created a virtual server. */
export function isKubeProxyServer(
  { protocol, address, port }: VirtualServer,
  { noted, deviceAddresses, nodeAddresses, excludeCidrs }: ServerOwnership,
): boolean {
  if (excludeCidrs.some((cidr) => cidrContains(cidr, address))) return false;
  return deviceAddresses.has(address) || noted.addresses.has(address) ||
    noted.exact.has(serverKey(protocol, address, port)) ||
    (nodeAddresses.has(address) && noted.nodePorts.has(`${protocol} ${port}`));
}

/** The input of `ipvsadm -R` that deletes them. No comment or blank line: either would end it. */
export function* renderServerDeletion(servers: readonly VirtualServer[]): Generator<string> {
  for (const server of servers) yield `-D ${serverArgument(server)}\n`;
}

function serverArgument({ protocol, address, port }: VirtualServer): string {
  const flag = { tcp: "-t", udp: "-u", sctp: "--sctp-service" }[protocol];
  return `${flag} ${formatHostPort(address, port)}`;
}

/** Formats a server for messages: `10.96.0.1:443/TCP`. */
export function describeServer({ protocol, address, port }: VirtualServer): string {
  return `${formatHostPort(address, port)}/${protocol.toUpperCase()}`;
}

/** The virtual servers that kube-proxy recorded as its own. */
export interface NotedServers {
  /** Every port of these. */
  readonly addresses: ReadonlySet<IpAddress>;
  /** These, each as its protocol, address and port. */
  readonly exact: ReadonlySet<string>;
  /** These ports on addresses of the node, as `tcp 30080`. */
  readonly nodePorts: ReadonlySet<string>;
}

/** Formats address, port and protocol as one key. */
function serverKey(protocol: string, address: IpAddress, port: number): string {
  return `${protocol} ${address} ${port}`;
}

/** Reads the sets of kube-proxy in short steps; other sets are skipped. */
export function* notedServers(sets: ReadonlyMap<string, SavedSet>): Generator<void, NotedServers> {
  const noted = {
    addresses: new Set<IpAddress>(),
    exact: new Set<string>(),
    nodePorts: new Set<string>(),
  };
  for (const [name, { entries }] of sets) {
    if (!isKubeProxySet(name)) continue;
    for (const entry of entries) {
      noteEntry(noted, { set: name.replace(/^KUBE-(6-)?/, ""), entry });
      yield;
    }
  }
  return noted;
}

function noteEntry(
  noted: { addresses: Set<IpAddress>; exact: Set<string>; nodePorts: Set<string> },
  { set, entry }: { readonly set: string; readonly entry: string },
): void {
  const nodePort = /^NODE-PORT-(TCP|UDP)$/.exec(set)?.[1];
  if (nodePort !== undefined) {
    noted.nodePorts.add(`${nodePort.toLowerCase()} ${entry}`);
    return;
  }
  const [addressText = "", service = ""] = entry.split(",");
  const address = tryParseIpAddress(addressText);
  if (address === undefined) return;
  if (set === "IPVS-IPS") noted.addresses.add(address);
  const [protocol, port] = service.split(":");
  const listed =
    ["CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER"].includes(set) ||
    set.startsWith("NODE-PORT-SCTP");
  if (listed && port !== undefined) noted.exact.add(serverKey(protocol!, address, Number(port)));
}
