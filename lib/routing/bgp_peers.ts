import { createHash } from "node:crypto";
import { blocksOfRange } from "../net/address_range.ts";
import { type Cidr, cidrContains, hostCidr } from "../net/cidr.ts";
import { addressAt, IP_FAMILIES, type IpAddress, ipFamilyOf } from "../net/ip_address.ts";
import { ITEMS_PER_STEP, sortInSteps } from "../net/steps.ts";
import { contentId } from "../policy/content_id.ts";
import { matchesLabels } from "../policy/label_selector.ts";
import type { AddressPool } from "./address_pool.ts";
import { BGP_PORT, type BgpImports, type BgpPeer } from "./bgp_plan.ts";
import { type NodeBgp, SESSION_DEFAULTS } from "./node_bgp.ts";
import type { RoutingNode } from "./routing_node.ts";
import { type BgpSettings, DEFAULT_AS } from "./routing_settings.ts";

/** A node with its annotations. */
export interface BgpNode {
  readonly node: RoutingNode;
  readonly bgp: NodeBgp;
}

/** Routers between nodes of different networks; the usual TTL of iBGP. */
const MESH_TTL = 64;
/** A name of BIRD has at most 64 bytes, of which its driver leaves 55. */
const LONGEST_NODE_NAME = 36;

/** Returns the AS number of a node. The configuration is the same on every node. */
export function asOf({ localAs }: Pick<BgpSettings, "localAs">, { as }: NodeBgp): number {
  return localAs ?? as ?? DEFAULT_AS;
}

/** Returns the router ID of a node. */
export function routerIdOf(
  { routerId }: Pick<BgpSettings, "routerId">,
  { name, primary }: RoutingNode,
): string {
  const { IPv4: own } = primary;
  if (routerId !== undefined) return routerId;
  if (own !== undefined) return own;
  const hash = createHash("sha256").update(name).digest().readUInt32BE();
  // 0 is not valid.
  return addressAt(BigInt(Math.max(1, hash)), "IPv4");
}

/**
 * Returns the sessions of a node, sorted by name, in steps. `nodes` may have the own one, too; `networks`:
 * those of its interfaces, empty = unknown.
 */
export function* peersOf(
  settings: BgpSettings,
  own: BgpNode,
  nodes: readonly BgpNode[],
  networks: readonly Cidr[],
): Generator<void, readonly BgpPeer[], void> {
  const peers = new Map<string, BgpPeer>();
  const targets = new Set<string>();
  const add = (peer: BgpPeer) => {
    const target = `${peer.address} ${peer.port}`;
    if (targets.has(target) || peers.has(peer.name)) return;
    targets.add(target);
    peers.set(peer.name, peer);
  };
  for (const { nodeSelector, bothFamilies = false, ...peer } of settings.peers) {
    if (nodeSelector && !matchesLabels(nodeSelector, own.node.labels)) continue;
    const other = ipFamilyOf(peer.address) === "IPv4" ? "IPv6" : "IPv4";
    const otherNextHop = bothFamilies ? peer.otherNextHop ?? own.node.primary[other] : undefined;
    add({
      ...peer,
      ...{ role: "external", prepend: peer.prepend || own.bgp.prepend },
      ...(otherNextHop && { otherNextHop }),
    });
  }
  // The configuration wins over annotations.
  for (const peer of own.bgp.peers) {
    add({ ...peer, role: "external", prepend: own.bgp.prepend });
  }
  // Of two nodes with one address, every update has to choose the same.
  const others = settings.mesh ? nodes : [];
  const sorted = yield* sortInSteps(
    others,
    (left, right) => left.node.name < right.node.name ? -1 : 1,
  );
  for (const [index, other] of sorted.entries()) {
    if (index % 64 === 0) yield;
    for (const peer of meshPeers(settings, own, other, networks)) add(peer);
  }
  return yield* sortInSteps(
    [...peers.values()],
    (left, right) => left.name < right.name ? -1 : 1,
  );
}

/** Returns the sessions with another node, one in each family that both have. */
function meshPeers(
  settings: BgpSettings,
  own: BgpNode,
  other: BgpNode,
  networks: readonly Cidr[],
): readonly BgpPeer[] {
  const as = asOf(settings, other.bgp);
  const isWanted = other.node.name !== own.node.name &&
    as === asOf(settings, own.bgp) && areConnected(own.bgp, other.bgp);
  if (!isWanted) return [];
  const { reflector } = own.bgp;
  const isClient = reflector !== undefined && other.bgp.reflectorClient === reflector;
  return IP_FAMILIES.flatMap((family) => {
    const [local, address] = [own.node.primary[family], other.node.primary[family]];
    if (local === undefined || address === undefined || local === address) return [];
    return [{
      name: `${nodeSession(other.node.name)}_${family === "IPv4" ? "v4" : "v6"}`,
      address,
      port: BGP_PORT,
      as,
      role: isClient ? "reflector-client" as const : "mesh" as const,
      localAddress: local,
      ...(isDistant(address, networks) && { multihopTtl: MESH_TTL }),
      ...SESSION_DEFAULTS,
      ...(isClient && { reflectorClusterId: reflector }),
    }];
  });
}

function isDistant(address: IpAddress, networks: readonly Cidr[]): boolean {
  return networks.length > 0 && !networks.some((network) => cidrContains(network, address));
}

/**
 * Whether two nodes have a session: all do without reflectors, and clients have sessions with the
 * reflectors of their cluster ID only. Both nodes come to the same answer.
 */
function areConnected(left: NodeBgp, right: NodeBgp): boolean {
  const isServedBy = (client: NodeBgp, server: NodeBgp) =>
    client.reflectorClient === undefined || client.reflectorClient === server.reflector;
  return isServedBy(left, right) && isServedBy(right, left);
}

/** Names of nodes may be longer than those of sessions, and have dots and dashes. */
function nodeSession(name: string): string {
  const plain = name.replaceAll(/[.-]/g, "_");
  const isUnique = !name.includes(".") && name.length <= LONGEST_NODE_NAME;
  return isUnique
    ? `node_${plain}`
    : `node_${plain.slice(0, LONGEST_NODE_NAME)}_${contentId(name).slice(0, 8)}`;
}

/** Returns what a node accepts from its peers, in steps. */
export function* importsOf(
  { settings, pools, clusterCidrs }: {
    readonly settings: BgpSettings;
    readonly pools: readonly AddressPool[];
    readonly clusterCidrs: readonly Cidr[];
  },
  own: BgpNode,
  nodes: readonly BgpNode[],
  serviceRanges: readonly Cidr[],
): Generator<void, BgpImports, void> {
  const { imports, mesh, externalIpRanges } = settings;
  const podCidrs: Cidr[] = [];
  const refused = [
    ...own.node.podCidrs,
    ...own.bgp.refused,
    ...serviceRanges,
    ...externalIpRanges,
    ...pools.flatMap(({ ranges }) => ranges.flatMap((range) => [...blocksOfRange(range)])),
  ];
  for (const [index, { node }] of nodes.entries()) {
    if (index % ITEMS_PER_STEP === 0) yield;
    if (node.name !== own.node.name) podCidrs.push(...node.podCidrs);
    refused.push(...node.addresses.map(hostCidr));
  }
  return {
    ...imports,
    mesh: mesh ? yield* unique(clusterCidrs.length > 0 ? clusterCidrs : podCidrs) : [],
    refused: yield* unique(refused),
    limitPerPeer: mesh
      ? Math.max(imports.limitPerPeer, roomFor(podCidrs.length))
      : imports.limitPerPeer,
  };
}

/** A reflector sends the ranges of all nodes. Powers of two, because a new limit may end sessions. */
function roomFor(count: number): number {
  return 2 ** Math.ceil(Math.log2(2 * count + 1));
}

function unique(cidrs: readonly Cidr[]): Generator<void, readonly Cidr[], void> {
  return sortInSteps([...new Set(cidrs)], (left, right) => left < right ? -1 : 1);
}
