import type { ObjectProblem } from "../api/problem.ts";
import { blocksOfRange } from "../net/address_range.ts";
import { type Cidr, cidrContains, hostCidr } from "../net/cidr.ts";
import { addressAt, IP_FAMILIES, type IpAddress, ipFamilyOf } from "../net/ip_address.ts";
import { SetIndex } from "../net/set_index.ts";
import { atOnce, ITEMS_PER_STEP, mergeInSteps, sortInSteps } from "../net/steps.ts";
import { contentId } from "../policy/content_id.ts";
import { matchesLabels } from "../policy/label_selector.ts";
import { deepEqual } from "../proxy/deep_equal.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { type AddressPool, otherUseOf, poolOf } from "./address_pool.ts";
import type { AnnouncedService, ServiceAddress } from "./announced_service.ts";
import {
  type AnnouncedPrefix,
  BGP_PORT,
  type BgpImports,
  type BgpPeer,
  type BgpPlan,
} from "./bgp_plan.ts";
import { NO_NODE_BGP, type NodeBgp, nodeBgpOf, SESSION_DEFAULTS } from "./node_bgp.ts";
import type { RoutingNode } from "./routing_node.ts";
import { type AdvertisedKind, type BgpSettings, DEFAULT_AS } from "./routing_settings.ts";
import { createHash } from "node:crypto";

/** The inputs of a plan besides objects. */
export interface BgpPlannerOptions {
  readonly settings: BgpSettings;
  readonly pools: readonly AddressPool[];
  readonly nodeName: string;
  /** The ranges of all pods; empty = those of the Nodes. */
  readonly clusterCidrs: readonly Cidr[];
}

/** The reasons why a prefix is or is not announced. */
export interface PrefixSource {
  readonly kind: AnnouncedPrefix["kind"];
  /** Absent for a range of pods or of cluster IPs. */
  readonly service?: ServiceKey;
  readonly to: readonly BgpPeer["role"][];
  /** The reason why this source does not announce it. */
  readonly obstacle?: string;
}

/** The kinds of prefixes. A prefix of several sources has the first of their kinds. */
const KINDS: Readonly<Record<AdvertisedKind, AnnouncedPrefix["kind"]>> = {
  loadBalancerIps: "load-balancer",
  externalIps: "external-ip",
  clusterIps: "cluster-ip",
  serviceRanges: "service-range",
  podCidrs: "pod-cidr",
};
const RANKS = Object.values(KINDS);

/** The source that is no Service: a key of a Service has a slash. */
const RANGES = "ranges";

/** What the announcements of all Services depend on. */
interface BgpContext {
  readonly options: BgpPlannerOptions;
  readonly serviceRanges: readonly Cidr[];
  readonly own: Pick<RoutingNode, "labels" | "podCidrs">;
  /** While the own node is not ready: the nodes that are. */
  readonly replacements: readonly Pick<RoutingNode, "name" | "labels">[];
  /** Why no address of any Service is announced. */
  readonly exclusion: string | undefined;
  readonly attributes: Pick<
    AnnouncedPrefix,
    "communities" | "largeCommunities" | "localPreference"
  >;
}

/**
 * Keeps the plan of the node's BGP daemon up to date with the cluster. A change of a Service or of
 * another Node costs the announcements that it touches. After a change of settings, ranges or the own
 * Node that concerns all Services, all are planned again.
 */
export class BgpPlanner {
  #options: BgpPlannerOptions;
  readonly #nodes = new Map<string, BgpNode>();
  readonly #nodesAt = new SetIndex<IpAddress, string>();
  /** The own node, also after its Node object is gone. */
  #own: BgpNode | undefined;
  #serviceRanges: readonly Cidr[] = [];
  #networks: readonly Cidr[] = [];
  #isDraining = false;
  readonly #services = new Map<ServiceKey, AnnouncedService>();
  /** The prefixes of each Service, and of {@linkcode RANGES}. */
  readonly #sources = new Map<string, ReadonlyMap<Cidr, PrefixSource>>();
  readonly #sourcesAt = new SetIndex<Cidr, string>();
  readonly #announced = new Map<Cidr, AnnouncedPrefix>();
  /** The sources that have to be planned again. */
  readonly #dirty = new Set<string>();
  /** Whether something that all Services, or the sessions, depend on may have changed. */
  #isOutdated = true;
  /** As of the last update. */
  #context: BgpContext | undefined;
  #plan: BgpPlan | undefined;

  constructor(options: BgpPlannerOptions) {
    this.#options = options;
  }

  /** The plan of the last update. Absent until the own Node is known: its addresses are needed. */
  get plan(): BgpPlan | undefined {
    return this.#plan;
  }

  /** Invalid annotations of the own Node. */
  get problems(): readonly ObjectProblem[] {
    const own = this.#nodes.get(this.#options.nodeName);
    return own && this.#options.settings.nodeAnnotations ? nodeBgpOf(own.node).problems : [];
  }

  /** Takes a Node, or that it is gone. */
  setNode(name: string, node: RoutingNode | undefined): void {
    const before = this.#nodes.get(name);
    // Nodes change often, and mostly in other fields.
    if (JSON.stringify(before?.node) === JSON.stringify(node)) return;
    const after = node && this.#withAnnotations(node);
    if (after) this.#nodes.set(name, after);
    else this.#nodes.delete(name);
    const isOwn = name === this.#options.nodeName;
    this.#isOutdated ||= isOwn || this.#own?.node.isNotReady === true ||
      routesText(before) !== routesText(after);
    const [had, has] = [before, after].map((each) => new Set(each?.node.addresses));
    this.#nodesAt.move(name, { from: had!, to: has! });
    for (const address of had!.symmetricDifference(has!)) {
      for (const source of this.#sourcesAt.at(hostCidr(address))) this.#dirty.add(source);
    }
  }

  /** Takes other settings. */
  setSettings(settings: Omit<BgpPlannerOptions, "nodeName">): void {
    const { nodeAnnotations } = this.#options.settings;
    this.#options = { ...this.#options, ...settings };
    const areRead = nodeAnnotations === settings.settings.nodeAnnotations;
    for (const [name, { node }] of areRead ? [] : this.#nodes) {
      this.#nodes.set(name, this.#withAnnotations(node));
    }
    this.#isOutdated = true;
  }

  /** Takes the ranges of cluster IPs. */
  setServiceRanges(ranges: readonly Cidr[]): void {
    this.#serviceRanges = ranges;
    this.#isOutdated = true;
  }

  /** Takes the networks of the node's interfaces; sessions with nodes of others need more hops. */
  setNetworks(networks: readonly Cidr[]): void {
    this.#networks = networks;
    this.#isOutdated = true;
  }

  /** While the node drains, it announces no address of a Service. */
  setDraining(isDraining: boolean): void {
    this.#isDraining = isDraining;
    this.#isOutdated = true;
  }

  /** Takes the addresses of a Service, or that it is gone. */
  setService(key: ServiceKey, service: AnnouncedService | undefined): void {
    if (service) this.#services.set(key, service);
    else this.#services.delete(key);
    this.#dirty.add(key);
  }

  /** Brings the plan up to date. Returns the announced prefixes that changed. */
  update(): ReadonlySet<Cidr> {
    return atOnce(this.updateInSteps());
  }

  /** As {@linkcode update}, in steps of one Service or prefix. Later events are for the next update. */
  *updateInSteps(): Generator<void, ReadonlySet<Cidr>, void> {
    const head = this.#isOutdated ? yield* this.#planHead() : this.#plan;
    const [touched, changed] = [new Set<Cidr>(), new Set<Cidr>()];
    if (!head) return changed;
    for (const source of this.#dirty) {
      yield;
      this.#dirty.delete(source);
      const before = this.#sources.get(source) ?? new Map();
      const after = source === RANGES ? this.#rangeSources() : this.#serviceSources(source);
      if (after.size > 0) this.#sources.set(source, after);
      else this.#sources.delete(source);
      this.#sourcesAt.move(source, { from: before.keys(), to: after.keys() });
      for (const prefix of [...before.keys(), ...after.keys()]) touched.add(prefix);
    }
    for (const prefix of touched) {
      yield;
      const announced = this.#announce(prefix);
      if (isSame(this.#announced.get(prefix), announced)) continue;
      if (announced) this.#announced.set(prefix, announced);
      else this.#announced.delete(prefix);
      changed.add(prefix);
    }
    const before = this.#plan;
    const announced = before && changed.size === 0
      ? before.announced
      : yield* this.#announcedAfter(changed);
    const isKept = before && before.announced === announced && before.peers === head.peers &&
      before.imports === head.imports && before.routerId === head.routerId &&
      before.localAs === head.localAs;
    if (!isKept) this.#plan = { ...head, announced };
    return changed;
  }

  /** Whether a prefix is announced as of the last update. */
  announces(prefix: Cidr): boolean {
    return this.#announced.has(prefix);
  }

  /** The Services and ranges that have a prefix, as of the last update. */
  sourcesOf(prefix: Cidr): readonly PrefixSource[] {
    return [...this.#sourcesAt.at(prefix)].map((source) => this.#sources.get(source)!.get(prefix)!);
  }

  #withAnnotations(node: RoutingNode): BgpNode {
    const { nodeAnnotations } = this.#options.settings;
    return { node, bgp: nodeAnnotations ? nodeBgpOf(node).bgp : NO_NODE_BGP };
  }

  /** Plans all but what is announced. Events that come meanwhile are for the next update. */
  *#planHead(): Generator<void, Omit<BgpPlan, "announced"> | undefined, void> {
    const options = this.#options;
    const { settings, nodeName } = options;
    const known = this.#nodes.get(nodeName);
    const own = this.#own = known ?? this.#own;
    this.#isOutdated = false;
    if (!own) return undefined;
    const nodes = [...this.#nodes.values()];
    const serviceRanges = this.#serviceRanges;
    const { communities, largeCommunities, localPreference } = settings;
    const { labels, podCidrs, isNotReady } = own.node;
    const context: BgpContext = {
      options,
      serviceRanges,
      own: { labels, podCidrs },
      replacements: !isNotReady
        ? []
        : nodes.flatMap(({ node }) =>
          node.isNotReady || node.exclusion !== undefined
            ? []
            : [{ name: node.name, labels: node.labels }]
        ),
      exclusion: this.#isDraining
        ? "the node drains"
        : known
        ? own.node.exclusion
        : "the Node does not exist",
      attributes: same(this.#context?.attributes, {
        communities: [...new Set([...communities, ...own.bgp.communities])].sort(),
        largeCommunities,
        ...(localPreference !== undefined && { localPreference }),
      }),
    };
    if (!deepEqual(this.#context, context)) {
      this.#context = context;
      for (const source of [...this.#services.keys(), RANGES]) this.#dirty.add(source);
    }
    const before = this.#plan;
    const peers = yield* peersOf(settings, own, nodes, this.#networks);
    const imports = yield* importsOf(options, own, nodes, serviceRanges);
    return {
      routerId: routerIdOf(settings, own.node),
      localAs: asOf(settings, own.bgp),
      peers: yield* sameItems(before?.peers, peers),
      imports: same(before?.imports, {
        ...imports,
        mesh: yield* sameItems(before?.imports.mesh, imports.mesh),
        refused: yield* sameItems(before?.imports.refused, imports.refused),
      }),
    };
  }

  /** The announced prefixes in order, where those that a set has not are as before. */
  *#announcedAfter(
    changed: ReadonlySet<Cidr>,
  ): Generator<void, readonly AnnouncedPrefix[], void> {
    const kept = (this.#plan?.announced ?? []).filter(({ prefix }) => !changed.has(prefix));
    const others = [...changed].flatMap((prefix) => this.#announced.get(prefix) ?? []);
    return yield* mergeInSteps(kept, yield* sortInSteps(others, comparePrefixes), comparePrefixes);
  }

  #serviceSources(key: string): ReadonlyMap<Cidr, PrefixSource> {
    const service = this.#services.get(key as ServiceKey);
    const prefixes = new Map<Cidr, PrefixSource>();
    for (const found of service?.addresses ?? []) {
      const own = this.#obstacle(found, service!) ?? found.obstacle;
      const obstacle = own ?? this.#context!.exclusion;
      const prefix = hostCidr(found.address);
      // An address may be of two kinds, of which one is announced.
      if (own !== undefined && prefixes.has(prefix)) continue;
      prefixes.set(prefix, {
        kind: KINDS[found.kind],
        service: key as ServiceKey,
        to: ["external"],
        ...(obstacle !== undefined && { obstacle }),
      });
    }
    return prefixes;
  }

  /** The reason why an address of a Service is not announced; `undefined` = it may be. */
  #obstacle(
    { address, kind, endpointNodes }: ServiceAddress,
    { switches }: AnnouncedService,
  ): string | undefined {
    const { own, options, replacements, serviceRanges } = this.#context!;
    const { settings, pools, clusterCidrs } = options;
    if (switches[kind] === false) return "an annotation of the Service turns it off";
    const isOn = switches[kind] ?? settings.advertise[kind];
    if (!isOn) return `routing.bgp.advertise.${kind} is off`;
    const [node] = [...this.#nodesAt.at(address)].sort();
    if (node !== undefined) return `it is the address of node ${node}`;
    const isExternal = kind === "externalIps";
    if (isExternal && !settings.externalIpRanges.some((each) => cidrContains(each, address))) {
      return "it is outside of routing.bgp.externalIpRanges";
    }
    const pool = kind === "clusterIps" ? undefined : poolOf(pools, address);
    const replacement = replacements.find(({ name, labels }) =>
      (!endpointNodes || endpointNodes.has(name)) &&
      (!pool?.nodeSelector || matchesLabels(pool.nodeSelector, labels)) &&
      settings.peers.some(({ nodeSelector }) =>
        !nodeSelector || matchesLabels(nodeSelector, labels)
      )
    );
    if (replacement) return `the Node is not ready, and ${replacement.name} is`;
    if (kind === "clusterIps") return undefined;
    const podCidrs = [...clusterCidrs, ...own.podCidrs];
    const use = otherUseOf(address, { podCidrs, serviceRanges });
    if (use !== undefined) return use;
    if (pool && isExternal) {
      return `it is in pool '${pool.name}', whose addresses are announced only for Services that ` +
        "they are assigned to";
    }
    if (pool && pool.announce !== "bgp") {
      return `pool '${pool.name}' is announced by ${pool.announce}`;
    }
    if (pool?.nodeSelector && !matchesLabels(pool.nodeSelector, own.labels)) {
      return `the nodeSelector of pool '${pool.name}' does not match the Node`;
    }
    return undefined;
  }

  /** Ranges of pods stay while the node announces no address of a Service. */
  #rangeSources(): ReadonlyMap<Cidr, PrefixSource> {
    const { exclusion, options, own, serviceRanges } = this.#context!;
    const { settings: { advertise, mesh } } = options;
    const to: readonly BgpPeer["role"][] = [
      ...mesh ? ["mesh", "reflector-client"] as const : [],
      ...advertise.podCidrs ? ["external"] as const : [],
    ];
    const podObstacle = to.length === 0
      ? "routing.bgp.advertise.podCidrs and routing.bgp.mesh are off"
      : undefined;
    const obstacle = advertise.serviceRanges
      ? exclusion
      : "routing.bgp.advertise.serviceRanges is off";
    const sources = new Map<Cidr, PrefixSource>();
    const add = (prefix: Cidr, source: PrefixSource, obstacle: string | undefined) =>
      sources.set(prefix, { ...source, ...(obstacle !== undefined && { obstacle }) });
    for (const prefix of serviceRanges) {
      add(prefix, { kind: "service-range", to: ["external"] }, obstacle);
    }
    for (const prefix of own.podCidrs) {
      add(prefix, { kind: "pod-cidr", to }, podObstacle);
    }
    return sources;
  }

  #announce(prefix: Cidr): AnnouncedPrefix | undefined {
    const sources = this.sourcesOf(prefix).filter(({ obstacle }) => obstacle === undefined);
    const [kind] = sources.map((source) => source.kind)
      .sort((left, right) => RANKS.indexOf(left) - RANKS.indexOf(right));
    const to = [...new Set(sources.flatMap((source) => source.to))].sort();
    return kind && { prefix, to, kind, ...this.#context!.attributes };
  }
}

/** What sessions, and the routes that are accepted, take from a node. */
function routesText(known: BgpNode | undefined): string | undefined {
  if (!known) return undefined;
  const { bgp, node: { addresses, primary, podCidrs } } = known;
  return JSON.stringify([bgp, addresses, primary, podCidrs]);
}

function comparePrefixes(left: AnnouncedPrefix, right: AnnouncedPrefix): number {
  return left.prefix < right.prefix ? -1 : left.prefix > right.prefix ? 1 : 0;
}

/** Returns the value before if the new one is equal, so that equal parts keep their identity. */
function same<Value>(before: Value | undefined, after: Value): Value {
  return deepEqual(before, after) ? before! : after;
}

/** As {@linkcode same}, for long lists. */
function* sameItems<Item>(
  before: readonly Item[] | undefined,
  after: readonly Item[],
): Generator<void, readonly Item[], void> {
  if (before?.length !== after.length) return after;
  for (const [index, item] of after.entries()) {
    if (index % ITEMS_PER_STEP === 0) yield;
    if (!deepEqual(before[index], item)) return after;
  }
  return before;
}

/** Whether a prefix is announced alike. Attributes are replaced as a whole. */
function isSame(left: AnnouncedPrefix | undefined, right: AnnouncedPrefix | undefined): boolean {
  return left?.kind === right?.kind && left?.communities === right?.communities &&
    left?.largeCommunities === right?.largeCommunities &&
    left?.localPreference === right?.localPreference && left?.to.join() === right?.to.join();
}

interface BgpNode {
  readonly node: RoutingNode;
  readonly bgp: NodeBgp;
}

/** Routers between nodes of different networks; the usual TTL of iBGP. */
const MESH_TTL = 64;
/** A name of BIRD has at most 64 bytes, of which its driver leaves 55. */
const LONGEST_NODE_NAME = 36;

/** Returns the AS number of a node. The configuration is the same on every node. */
function asOf({ localAs }: Pick<BgpSettings, "localAs">, { as }: NodeBgp): number {
  return localAs ?? as ?? DEFAULT_AS;
}

/** Returns the router ID of a node. */
function routerIdOf(
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
function* peersOf(
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
function* importsOf(
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
