import type { IpAddress } from "../net/ip_address.ts";
import { SetIndex } from "../net/set_index.ts";
import { hashText, mixHash } from "../net/text_hash.ts";
import { type LabelSelector, matchesLabels } from "../policy/label_selector.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { type AddressPool, poolOf } from "./address_pool.ts";
import type { AnnouncedService, ServiceAddress } from "./announced_service.ts";
import { type MemberReport, reportedObstacle } from "./layer2_member.ts";
import type { RoutingNode } from "./routing_node.ts";

/** An address that one node answers for. */
export interface Layer2Address {
  /** Only for nodes that do not report whether it matches. @default {every node} */
  readonly nodeSelector?: LabelSelector;
  /** With policy Local: the nodes with a ready endpoint. @default {every node} */
  readonly endpointNodes?: ReadonlySet<string>;
}

/** A node, and why it cannot own an address. */
export interface OwnerCandidate {
  readonly node: string;
  /** Absent if it can. */
  readonly obstacle?: string;
}

interface OwnedAddress extends Layer2Address {
  readonly address: IpAddress;
  readonly hash: number;
  owner?: string;
}

interface KnownNode extends RoutingNode {
  readonly hash: number;
  /** Absent if it is not known: the node counts as able to hold every address. */
  readonly report?: MemberReport;
}

/**
 * Which node answers for each address: the one with the highest score among those that may. A score
 * depends on address and node alone, so all nodes find the same owner without talking to each other,
 * and only the addresses of a node that goes, or that a new node wins, get another owner. Nodes that
 * are not ready come after all others.
 */
export class Layer2Owners {
  #pools: readonly AddressPool[] = [];
  readonly #services = new Map<ServiceKey, AnnouncedService>();
  readonly #holders = new Map<IpAddress, Map<ServiceKey, ServiceAddress>>();
  readonly #addresses = new Map<IpAddress, OwnedAddress>();
  readonly #nodes = new Map<string, KnownNode>();
  readonly #reports = new Map<string, MemberReport>();
  #live: ReadonlySet<string> = new Set();
  /** The nodes that have an address as their own: it is no address of a Service there. */
  readonly #nodesAt = new SetIndex<IpAddress, string>();
  /** The nodes that could own addresses at the last update. */
  #usable = new Map<string, KnownNode>();
  /** Addresses that are decided from scratch by the next update. */
  readonly #changed = new Set<IpAddress>();
  readonly #gone = new Map<IpAddress, string>();
  /** The number of addresses of each node. */
  readonly #counts = new Map<string, number>();

  constructor(pools: readonly AddressPool[]) {
    this.setPools(pools);
  }

  /** Takes other pools. The caller then sets every Service again. */
  setPools(pools: readonly AddressPool[]): void {
    this.#pools = pools.filter(({ announce }) => announce === "layer2");
  }

  /** Every address of a Service in a pool with layer 2. */
  get addresses(): Iterable<IpAddress> {
    return this.#holders.keys();
  }

  /** The Services that have an address of layer 2. */
  servicesAt(address: IpAddress): readonly ServiceKey[] {
    return [...this.#holders.get(address)?.keys() ?? []];
  }

  /** Takes the addresses of a Service, or that it is gone. */
  setService(key: ServiceKey, service: AnnouncedService | undefined): void {
    const before = addressesOf(this.#services.get(key));
    const after = addressesOf(service).filter(({ address }) => poolOf(this.#pools, address));
    if (service) this.#services.set(key, service);
    else this.#services.delete(key);
    for (const { address } of before) this.#holders.get(address)?.delete(key);
    for (const found of after) {
      this.#holders.getOrInsertComputed(found.address, () => new Map()).set(key, found);
    }
    for (const address of new Set([...before, ...after].map((each) => each.address))) {
      this.#announce(address);
    }
  }

  #announce(address: IpAddress): void {
    const holders = this.#holders.get(address);
    if (!holders) return;
    if (holders.size === 0) {
      this.#holders.delete(address);
      this.setAddress(address, undefined);
      return;
    }
    const nodeSelector = poolOf(this.#pools, address)?.nodeSelector;
    // Services that share an address with policy Local have the same endpoints, but perhaps not yet.
    const local = [...holders.values()].flatMap(({ endpointNodes }) => endpointNodes ?? []);
    const endpointNodes = local.reduce<ReadonlySet<string> | undefined>(
      (all, nodes) => all ? all.intersection(nodes) : nodes,
      undefined,
    );
    this.setAddress(address, {
      ...(nodeSelector && { nodeSelector }),
      ...(endpointNodes && { endpointNodes }),
    });
  }

  /** Takes an address, or that no node answers for it any more. */
  setAddress(address: IpAddress, wanted: Layer2Address | undefined): void {
    const known = this.#addresses.get(address);
    const owner = known?.owner ?? this.#gone.get(address);
    if (!wanted) {
      this.#addresses.delete(address);
      this.#changed.delete(address);
      if (owner !== undefined) this.#gone.set(address, owner);
      return;
    }
    this.#gone.delete(address);
    const hash = known?.hash ?? hashText(address);
    this.#addresses.set(address, {
      ...wanted,
      ...{ address, hash },
      ...(owner !== undefined && { owner }),
    });
    this.#changed.add(address);
  }

  /** Takes a Node, or that it is gone. */
  setNode(name: string, node: RoutingNode | undefined): void {
    const before = this.#nodes.get(name)?.addresses ?? [];
    const after = node?.addresses ?? [];
    if (node) this.#know(node);
    else this.#nodes.delete(name);
    if (`${before}` === `${after}`) return;
    this.#nodesAt.move(name, { from: before, to: after });
    for (const address of [...before, ...after]) {
      if (this.#addresses.has(address)) this.#changed.add(address);
    }
  }

  /** Takes what a node says of itself; `undefined` = nothing. */
  setReport(name: string, report: MemberReport | undefined): void {
    if (report) this.#reports.set(name, report);
    else this.#reports.delete(name);
    const node = this.#nodes.get(name);
    if (node) this.#know(node);
  }

  /** Takes the nodes with a valid Lease; `undefined` = unknown, and owners stay as they are. */
  setLive(live: ReadonlySet<string> | undefined): void {
    if (live) this.#live = live;
  }

  /** The owner of an address as of the last update. */
  ownerOf(address: IpAddress): string | undefined {
    return this.#addresses.get(address)?.owner;
  }

  /** The addresses of a node as of the last update. */
  *ownedBy(node: string): Generator<IpAddress> {
    for (const [address, { owner }] of this.#addresses) if (owner === node) yield address;
  }

  /** Whether a node owns an address as of the last update. */
  isOwner(node: string): boolean {
    return (this.#counts.get(node) ?? 0) > 0;
  }

  /** Decides the owners again, and returns the changes. */
  update(): ReadonlyMap<IpAddress, { readonly before?: string; readonly after?: string }> {
    const before = this.#usable;
    const usable = this.#usable = new Map(
      [...this.#nodes].filter(([name, node]) => this.#obstacle(name, node) === undefined),
    );
    // A Node whose labels changed is another one.
    const differ = (these: ReadonlyMap<string, KnownNode>, those: typeof these) =>
      [...these].flatMap(([name, node]) => those.get(name) === node ? [] : node);
    const lost = new Set(differ(before, usable).map(({ name }) => name));
    const won = differ(usable, before);
    const changes = new Map<IpAddress, { before?: string; after?: string }>();
    for (const [address, owner] of this.#gone) changes.set(address, { before: owner });
    this.#gone.clear();
    const hasOtherNodes = lost.size + won.length > 0;
    for (const address of hasOtherNodes ? this.#addresses.keys() : this.#changed) {
      const owned = this.#addresses.get(address)!;
      const old = owned.owner;
      const isOpen = old === undefined || lost.has(old) || this.#changed.has(address);
      const candidates = isOpen ? usable.values() : won;
      const owner = this.#nodesAt.has(address)
        ? undefined
        : this.#elect(owned, candidates, isOpen ? undefined : usable.get(old));
      if (owner === old) continue;
      if (owner === undefined) delete owned.owner;
      else owned.owner = owner;
      changes.set(address, {
        ...(old !== undefined && { before: old }),
        ...(owner !== undefined && { after: owner }),
      });
    }
    this.#changed.clear();
    for (const { before, after } of changes.values()) {
      if (before !== undefined) this.#count(before, -1);
      if (after !== undefined) this.#count(after, 1);
    }
    return changes;
  }

  /** Whether each node can own an address, and why not. Sorted by name. */
  candidates(address: IpAddress): readonly OwnerCandidate[] {
    const owned = this.#addresses.get(address);
    if (!owned) return [];
    const names = [...new Set([...this.#nodes.keys(), ...this.#live])].sort();
    const [other] = [...this.#nodesAt.at(address)].sort();
    if (other !== undefined) {
      return names.map((node) => ({ node, obstacle: `it is the address of node ${other}` }));
    }
    const obstacles = new Map(names.map((name) => {
      const node = this.#nodes.get(name);
      return [name, this.#obstacle(name, node) ?? (node && obstacleAt(owned, node))];
    }));
    const able = names.filter((name) => obstacles.get(name) === undefined);
    const isLast = (name: string) => this.#nodes.get(name)?.isNotReady;
    const hasReady = able.some((name) => !isLast(name));
    return names.map((node) => {
      const obstacle = obstacles.get(node) ??
        (hasReady && isLast(node) ? "the Node is not ready, and another one is" : undefined);
      return { node, ...(obstacle !== undefined && { obstacle }) };
    });
  }

  #know(node: RoutingNode): void {
    const report = this.#reports.get(node.name);
    const { report: _, ...rest } = node as KnownNode;
    this.#nodes.set(node.name, {
      ...rest,
      hash: hashText(node.name),
      ...(report && { report }),
    });
  }

  /** Returns the node with the highest rank; `current` is one of them. */
  #elect(
    address: OwnedAddress,
    nodes: Iterable<KnownNode>,
    current: KnownNode | undefined,
  ): string | undefined {
    let best = current;
    let most = current ? rank(address, current) : -Infinity;
    for (const node of nodes) {
      const own = rank(address, node);
      if (own < most || own === most && best !== undefined && node.name >= best.name) continue;
      if (obstacleAt(address, node) !== undefined) continue;
      [best, most] = [node, own];
    }
    return best?.name;
  }

  #count(node: string, more: number): void {
    const count = (this.#counts.get(node) ?? 0) + more;
    if (count > 0) this.#counts.set(node, count);
    else this.#counts.delete(node);
  }

  #obstacle(name: string, node: RoutingNode | undefined): string | undefined {
    if (!node) return "the Node does not exist";
    if (!this.#live.has(name)) return "kube-relay does not renew its Lease there";
    return node.exclusion;
  }
}

function addressesOf(service: AnnouncedService | undefined): readonly ServiceAddress[] {
  return service?.addresses.filter(({ kind }) => kind === "loadBalancerIps") ?? [];
}

/** Whether a node may own addresses of some pool, whichever Services there are. */
export function mayOwnAddresses(
  { exclusion, labels }: RoutingNode,
  pools: readonly AddressPool[],
): boolean {
  return exclusion === undefined &&
    pools.some(({ announce, nodeSelector }) =>
      announce === "layer2" && (!nodeSelector || matchesLabels(nodeSelector, labels))
    );
}

function obstacleAt(
  { address, nodeSelector, endpointNodes }: OwnedAddress,
  { name, labels, report }: KnownNode,
): string | undefined {
  if (!report?.pools && nodeSelector && !matchesLabels(nodeSelector, labels)) {
    return "the nodeSelector of the pool does not match the Node";
  }
  const obstacle = report && reportedObstacle(report, address);
  if (obstacle !== undefined) return obstacle;
  if (endpointNodes && !endpointNodes.has(name)) {
    return "the Node has no ready endpoint, which policy Local requires";
  }
  return undefined;
}

/**
 * Mixes two hashes: the finalizer of MurmurHash3, twice. Every release has to find the same owner. Nodes
 * that are not ready come last.
 */
function rank(address: OwnedAddress, { hash: node, isNotReady }: KnownNode): number {
  const mixed = mixHash(address.hash ^ Math.imul(node, 0x9e3779b1)) + node | 0;
  return (mixHash(mixed) >>> 0) - (isNotReady ? 2 ** 32 : 0);
}
