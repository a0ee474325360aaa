import type { ObjectProblem } from "../api/problem.ts";
import { type Cidr, hostCidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { SetIndex } from "../net/set_index.ts";
import { atOnce } from "../net/steps.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import type { AddressPool } from "./address_pool.ts";
import type { AnnouncedService } from "./announced_service.ts";
import { announcementObstacle } from "./announcement_obstacle.ts";
import { Announcements, type PrefixSource } from "./announcements.ts";
import { importsOf } from "./bgp_imports.ts";
import { asOf, type BgpNode, peersOf, routerIdOf } from "./bgp_peers.ts";
import type { AnnouncedPrefix, BgpPeer, BgpPlan } from "./bgp_plan.ts";
import { NO_NODE_BGP, nodeBgpOf } from "./node_bgp.ts";
import type { RoutingNode } from "./routing_node.ts";
import type { AdvertisedKind, BgpSettings } from "./routing_settings.ts";

/** The inputs of a plan besides objects. */
export interface BgpPlannerOptions {
  readonly settings: BgpSettings;
  readonly pools: readonly AddressPool[];
  /** The own node. */
  readonly nodeName: string;
  /** The ranges of all pods; empty = those of the Nodes. */
  readonly clusterCidrs: readonly Cidr[];
}

/** The changes of an update. */
export interface BgpPlanChanges {
  /** Absent until the own Node is known: its addresses and its AS are needed. */
  readonly plan?: BgpPlan;
  readonly isChanged: boolean;
  /** The announced prefixes that changed. */
  readonly prefixes: ReadonlySet<Cidr>;
}

const KINDS: Readonly<Record<AdvertisedKind, AnnouncedPrefix["kind"]>> = {
  loadBalancerIps: "load-balancer",
  externalIps: "external-ip",
  clusterIps: "cluster-ip",
  podCidrs: "pod-cidr",
  serviceRanges: "service-range",
};

/** Sources that are no Services; a key of a Service has a slash. */
const [POD_CIDRS, SERVICE_RANGES] = ["pod CIDRs", "service ranges"];

/** Keeps the plan of the node's BGP daemon up to date with the cluster. */
export class BgpPlanner {
  #options: BgpPlannerOptions;
  readonly #announcements = new Announcements();
  readonly #nodes = new Map<string, BgpNode>();
  readonly #problems = new Map<string, readonly ObjectProblem[]>();
  readonly #services = new Map<ServiceKey, AnnouncedService>();
  /** The Services with an address, in case a node gets the same address. */
  readonly #servicesAt = new SetIndex<IpAddress, ServiceKey>();
  readonly #nodesAt = new SetIndex<IpAddress, string>();
  #serviceRanges: readonly Cidr[] = [];
  #networks: readonly Cidr[] = [];
  #isDraining = false;
  /** The own node, also after its Node object is gone. */
  #own: BgpNode | undefined;
  #isOwnNodeMissing = false;
  /** While the own node is not ready: the nodes that are. */
  #replacements: readonly RoutingNode[] = [];
  #areNodesChanged = false;
  #plan: BgpPlan | undefined;

  constructor(options: BgpPlannerOptions) {
    this.#options = options;
  }

  /** The plan of the last update. */
  get plan(): BgpPlan | undefined {
    return this.#plan;
  }

  /** Invalid annotations of Nodes. */
  get problems(): readonly ObjectProblem[] {
    return [...this.#problems.values()].flat();
  }

  /** Takes a Node, or that it is gone. */
  setNode(name: string, node: RoutingNode | undefined): void {
    const before = this.#nodes.get(name);
    // Nodes change often, and mostly in other fields.
    if (JSON.stringify(before?.node) === JSON.stringify(node)) return;
    if (node) this.#readAnnotations(node);
    else {
      this.#nodes.delete(name);
      this.#problems.delete(name);
    }
    this.#areNodesChanged = true;
    this.#replaceAddresses(name, {
      from: before?.node.addresses ?? [],
      to: node?.addresses ?? [],
    });
    if (name === this.#options.nodeName) this.#setOwn();
  }

  /** Takes other settings. The caller then sets every Service again. */
  setSettings(settings: Omit<BgpPlannerOptions, "nodeName">): void {
    const { nodeAnnotations } = this.#options.settings;
    this.#options = { ...this.#options, ...settings };
    const areRead = nodeAnnotations === settings.settings.nodeAnnotations;
    for (const { node } of areRead ? [] : [...this.#nodes.values()]) this.#readAnnotations(node);
    this.#areNodesChanged = true;
    this.#setOwn();
  }

  #readAnnotations(node: RoutingNode): void {
    const { settings: { nodeAnnotations }, nodeName } = this.#options;
    const { name } = node;
    const { bgp, problems } = nodeAnnotations
      ? nodeBgpOf(node)
      : { bgp: NO_NODE_BGP, problems: [] };
    this.#nodes.set(name, { node, bgp });
    if (problems.length > 0 && name === nodeName) this.#problems.set(name, problems);
    else this.#problems.delete(name);
  }

  /** Takes the ranges of cluster IPs. The caller then sets every Service again. */
  setServiceRanges(ranges: readonly Cidr[]): void {
    this.#serviceRanges = ranges;
    this.#areNodesChanged = true;
    this.#announceRanges();
  }

  /** Takes the networks of the node's interfaces; sessions with nodes of others need more hops. */
  setNetworks(networks: readonly Cidr[]): void {
    this.#networks = networks;
    this.#areNodesChanged = true;
  }

  /** While the node drains, it announces no address of a Service. */
  setDraining(isDraining: boolean): void {
    this.#isDraining = isDraining;
    this.#announcements.setExclusion(this.#exclusion());
  }

  /** Takes the addresses of a Service, or that it is gone. */
  setService(key: ServiceKey, service: AnnouncedService | undefined): void {
    this.#servicesAt.move(key, {
      from: addressesOf(this.#services.get(key)),
      to: addressesOf(service),
    });
    if (service) this.#services.set(key, service);
    else this.#services.delete(key);
    this.#announceService(key);
  }

  /** Brings the plan up to date. */
  update(): BgpPlanChanges {
    return atOnce(this.updateInSteps());
  }

  /** As {@linkcode update}, in steps of one prefix. Events have to wait until the last step. */
  *updateInSteps(): Generator<void, BgpPlanChanges, void> {
    const own = this.#own;
    if (!own) return { isChanged: false, prefixes: new Set() };
    if (this.#areNodesChanged) this.#setReplacements();
    const prefixes = yield* this.#announcements.updateInSteps();
    const before = this.#plan;
    const announced = this.#announcements.sorted;
    if (before && !this.#areNodesChanged && before.announced === announced) {
      return { plan: before, isChanged: false, prefixes };
    }
    const { settings } = this.#options;
    const plan: BgpPlan = this.#plan = before && !this.#areNodesChanged
      ? { ...before, announced }
      : {
        routerId: routerIdOf(settings, own.node),
        localAs: asOf(settings, own.bgp),
        peers: same(
          before?.peers,
          peersOf(settings, {
            own,
            others: this.#nodes.values(),
            networks: this.#networks,
          }),
        ),
        announced,
        imports: same(
          before?.imports,
          importsOf(this.#options, {
            ...{ own, nodes: this.#nodes.values(), serviceRanges: this.#serviceRanges },
            nodeAddresses: this.#nodesAt.keys(),
          }),
        ),
      };
    this.#areNodesChanged = false;
    const isSame = before && before.announced === announced && before.peers === plan.peers &&
      before.imports === plan.imports && before.routerId === plan.routerId &&
      before.localAs === plan.localAs;
    if (isSame) this.#plan = before;
    return { plan: this.#plan, isChanged: !isSame, prefixes };
  }

  /** The Services and ranges that have a prefix, as of the last update. */
  sourcesOf(prefix: Cidr): readonly PrefixSource[] {
    return this.#announcements.sourcesOf(prefix);
  }

  #setOwn(): void {
    const before = this.#own?.node;
    const own = this.#nodes.get(this.#options.nodeName);
    this.#isOwnNodeMissing = own === undefined;
    if (own) this.#own = own;
    if (!this.#own) return;
    this.#announcements.setExclusion(this.#exclusion());
    const { communities, largeCommunities, localPreference } = this.#options.settings;
    this.#announcements.setAttributes({
      communities: [...new Set([...communities, ...this.#own.bgp.communities])].sort(),
      largeCommunities,
      ...(localPreference !== undefined && { localPreference }),
    });
    this.#announceRanges();
    // The selectors of pools match the labels, and no Service has an address of pods.
    const { labels, podCidrs } = this.#own.node;
    const isSame = JSON.stringify(before?.labels) === JSON.stringify(labels) &&
      `${before?.podCidrs}` === `${podCidrs}`;
    if (isSame) return;
    for (const key of this.#services.keys()) this.#announceService(key);
  }

  /** A node that is not ready announces what no other node can announce. */
  #setReplacements(): void {
    const own = this.#own?.node;
    const replacements = !own?.isNotReady
      ? []
      : [...this.#nodes.values()].flatMap(({ node }) =>
        node.isNotReady || node.exclusion !== undefined ? [] : node
      );
    const isSame = (one: readonly RoutingNode[], other: readonly RoutingNode[]) =>
      one.length === other.length && one.every((each, index) => each === other[index]);
    if (isSame(replacements, this.#replacements)) return;
    this.#replacements = replacements;
    for (const key of this.#services.keys()) this.#announceService(key);
  }

  /** Announces the addresses again that a node got or lost. */
  #replaceAddresses(
    name: string,
    change: { readonly from: readonly IpAddress[]; readonly to: readonly IpAddress[] },
  ): void {
    this.#nodesAt.move(name, change);
    const addresses = [...change.from, ...change.to];
    const touched = addresses.flatMap((each) => [...this.#servicesAt.at(each)]);
    for (const key of new Set(touched)) this.#announceService(key);
  }

  /** The reason why no address of any Service is announced. */
  #exclusion(): string | undefined {
    if (this.#isDraining) return "the node drains";
    if (this.#isOwnNodeMissing) return "the Node does not exist";
    return this.#own?.node.exclusion;
  }

  #announceService(key: ServiceKey): void {
    const prefixes = new Map<Cidr, PrefixSource>();
    const service = this.#services.get(key);
    const own = this.#own?.node;
    for (const found of service?.addresses ?? []) {
      const [nodeAt] = this.#nodesAt.at(found.address);
      const context = {
        ...{ ...this.#options, nodeAt, own, serviceRanges: this.#serviceRanges },
        replacements: this.#replacements,
      };
      const obstacle = announcementObstacle(found, service!, context) ?? found.obstacle;
      const prefix = hostCidr(found.address);
      // An address may be of two kinds, of which one is announced.
      if (obstacle !== undefined && prefixes.has(prefix)) continue;
      prefixes.set(prefix, {
        kind: KINDS[found.kind],
        service: key,
        to: ["external"],
        ...(obstacle !== undefined && { obstacle }),
      });
    }
    this.#announcements.set(key, prefixes);
  }

  #announceRanges(): void {
    const { settings: { advertise, mesh } } = this.#options;
    const nodes: readonly BgpPeer["role"][] = mesh ? ["mesh", "reflector-client"] : [];
    const to = [...nodes, ...advertise.podCidrs ? ["external" as const] : []];
    const off = to.length === 0
      ? "routing.bgp.advertise.podCidrs and routing.bgp.mesh are off"
      : undefined;
    this.#announcements.set(
      POD_CIDRS!,
      sourcesOf(this.#own?.node.podCidrs ?? [], { kind: "pod-cidr", to, obstacle: off }),
    );
    const obstacle = advertise.serviceRanges
      ? undefined
      : "routing.bgp.advertise.serviceRanges is off";
    this.#announcements.set(
      SERVICE_RANGES!,
      sourcesOf(this.#serviceRanges, { kind: "service-range", to: ["external"], obstacle }),
    );
  }
}

function addressesOf(service: AnnouncedService | undefined): readonly IpAddress[] {
  return service?.addresses.map(({ address }) => address) ?? [];
}

function sourcesOf(
  prefixes: readonly Cidr[],
  { kind, to, obstacle }: Pick<PrefixSource, "kind" | "to"> & {
    readonly obstacle: string | undefined;
  },
): ReadonlyMap<Cidr, PrefixSource> {
  const source: PrefixSource = { kind, to, ...(obstacle !== undefined && { obstacle }) };
  return new Map(prefixes.map((prefix) => [prefix, source]));
}

/** Returns the value before if the new one is equal, so that equal parts keep their identity. */
function same<Value>(before: Value | undefined, after: Value): Value {
  return before !== undefined && JSON.stringify(before) === JSON.stringify(after) ? before : after;
}
