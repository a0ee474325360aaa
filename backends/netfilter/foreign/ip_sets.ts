/**
 * The ipsets of kube-proxy's ipvs mode, and the owners of virtual servers derived from them.
 *
 * @module
 */
import { type IpAddress, tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import { MAX_SET_NAME_LENGTH, type SavedSet } from "../ipset/ipset_text.ts";

/** The sets' names after `KUBE-` (IPv4) or `KUBE-6-` (IPv6, cut to 31 characters). */
const SETS: readonly string[] = [
  "LOOP-BACK",
  "CLUSTER-IP",
  "EXTERNAL-IP",
  "EXTERNAL-IP-LOCAL",
  "LOAD-BALANCER",
  "LOAD-BALANCER-LOCAL",
  "LOAD-BALANCER-FW",
  "LOAD-BALANCER-SOURCE-CIDR",
  "LOAD-BALANCER-SOURCE-IP",
  "NODE-PORT-TCP",
  "NODE-PORT-UDP",
  "NODE-PORT-LOCAL-TCP",
  "NODE-PORT-LOCAL-UDP",
  "NODE-PORT-SCTP-HASH",
  "NODE-PORT-LOCAL-SCTP-HASH",
  "NODE-PORT-SCTP",
  "NODE-PORT-LOCAL-SCTP",
  "HEALTH-CHECK-NODE-PORT",
  "IPVS-IPS",
];

const KUBE_PROXY_SETS: ReadonlySet<string> = new Set(
  SETS.flatMap((name) => [`KUBE-${name}`, `KUBE-6-${name}`.slice(0, MAX_SET_NAME_LENGTH)]),
);

const KUBE_ROUTER_SET = /^(inet6:)?(kube-router-|KUBE-(SRC|DST)-[A-Z2-7]{16}$)/;

/** Whether only kube-proxy creates a set of this name. */
export function isKubeProxySet(name: string): boolean {
  return KUBE_PROXY_SETS.has(name);
}

/** Whether kube-router (in k3s: its network policies) creates sets of this name. */
export function isKubeRouterSet(name: string): boolean {
  return KUBE_ROUTER_SET.test(name);
}

/** The virtual servers that kube-proxy recorded as its own. */
export interface NotedServers {
  /** Every port of these. */
  readonly addresses: ReadonlySet<IpAddress>;
  /** These, as {@linkcode serverKey} has them. */
  readonly exact: ReadonlySet<string>;
  /** These ports on addresses of the node, as `tcp 30080`. */
  readonly nodePorts: ReadonlySet<string>;
}

/** Formats address, port and protocol as one key. */
export function serverKey(protocol: string, address: IpAddress, port: number): string {
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
