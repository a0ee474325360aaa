import { nodeRegarding } from "../../kube/event.ts";
import { messageOf } from "../../log/message_of.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { forEachInSlices } from "../../os/time_slice.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { SyncReport } from "../../engine/data_plane.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import { poolOf } from "../../routing/address_pool.ts";
import type { ComparedLayer2 } from "../../routing/compare_layer2.ts";
import {
  linkText,
  type MemberReport,
  memberReport,
  type NodeLink,
  poolDifferences,
  poolsElsewhere,
  readMemberReport,
} from "../../routing/layer2_member.ts";
import { Layer2Owners, mayOwnAddresses, type OwnerCandidate } from "../../routing/layer2_owner.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import type { ObjectChange } from "../change_listener.ts";
import { PartLoop, type RoutingPartDependencies } from "./routing_parts.ts";
import type { Layer2Backend } from "./routing_backends.ts";
import { WakeUp } from "../../os/wake_up.ts";

/** Time between two reads of the interfaces: by a node that owns addresses or lacks a link, by others. */
const [READ_LINKS_MS, READ_LINKS_IDLE_MS] = [1_000, 10_000];
/**
 * A lost link counts at once, and any other change not before this time after the last one: each moves
 * addresses and is written for every node to see, so an interface must not flap.
 */
const STEADY_MS = 5_000;
/** Time between two searches for other machines that answer for own addresses. */
const CONFLICTS_MS = 60_000;
/** Most links and nodes that are reported in one event. */
const MOST_REPORTED = 10;

/** Who answers for which address, as of the last sync. */
export interface OwnedAddressView {
  readonly address: IpAddress;
  readonly owner: string | undefined;
  readonly services: readonly ServiceKey[];
  /** If it has no owner: the nodes, and why none of them can be it. */
  readonly candidates: readonly OwnerCandidate[];
}

/** Time between two syncs: an address has to move within a second. */
const MIN_SYNC_PERIOD_MS = 100;
/** Longest time from one sync to the next. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced layer 2 addresses",
  failed: "Cannot sync layer 2 addresses; the changes are tried again",
  quarantined: "Load balancer address is in quarantine; it is tried again, all others work",
  released: "Load balancer address is out of quarantine",
  item: "address",
};

/** The addresses of one IP family that this node answers for. */
class Layer2Family extends PartLoop<IpAddress> {
  readonly backend: Layer2Backend;
  readonly #addresses = new Set<IpAddress>();

  constructor(
    parts: ConstructorParameters<typeof PartLoop>[0],
    backend: Layer2Backend,
    /** Brings the owners up to date before a plan is made. Calls {@linkcode hold}. */
    refresh: () => Promise<void>,
    sync: (addresses: ReadonlySet<IpAddress>) => Promise<SyncReport<IpAddress>>,
  ) {
    super(parts, {
      id: { controller: "routing", family: backend.family },
      texts: TEXTS,
      periodMs: [MIN_SYNC_PERIOD_MS, MAX_SYNC_PERIOD_MS],
      collect: () => refresh().then(() => []),
      sync: () => sync(this.#addresses),
    });
    this.backend = backend;
  }

  get family(): IpFamily {
    return this.backend.family;
  }

  /** The addresses that this node is to answer for. */
  get addresses(): ReadonlySet<IpAddress> {
    return this.#addresses;
  }

  /** Whether this node has an address, or is about to have it. */
  owns(address: IpAddress): boolean {
    return this.#addresses.has(address) ||
      this.backend.inspect().held.some((held) => held.address === address);
  }

  /** Takes whether this node answers for an address, and requests a sync. */
  hold(address: IpAddress, isHeld: boolean): void {
    this.request();
    if (this.#addresses.has(address) === isHeld) return;
    if (isHeld) this.#addresses.add(address);
    else this.#addresses.delete(address);
    const words = [isHeld ? "answered for here" : "no longer answered for"];
    const item = { key: address, words };
    this.planned(isHeld ? undefined : item, isHeld ? item : undefined);
  }

  /** Gives every address up at once, whatever the loop waits for. Rejects if that fails. */
  async leave(): Promise<void> {
    await this.loop.stop();
    for (const address of [...this.#addresses]) this.hold(address, false);
    if (this.backend.inspect().held.length > 0) await this.backend.sync(new Set(), []);
  }
}

/** Announces addresses by layer 2: decides whether this node answers, for both families. */
export class Layer2Part {
  readonly families: readonly Layer2Family[];
  readonly #clock: Clock;
  readonly #dependencies: RoutingPartDependencies;
  readonly #owners: Layer2Owners;
  #settings: RoutingSettings;
  readonly #dirty = new Set<ServiceKey>();
  /** Addresses that this node owns but for which another machine answers. */
  readonly #yielded = new Set<IpAddress>();
  /** When this node was last found to own an address. */
  readonly #ownedAt = new Map<IpAddress, number>();
  /** Whether this node began to take part since the last sync. */
  #hasJoined = false;
  readonly #listeners: (() => void)[] = [];
  /** The nodes that take part with their reports, if they have any; `undefined` = unknown. */
  #members: Map<string, MemberReport | undefined> | undefined;
  /** Of both families; `undefined` = not read yet. */
  #links: readonly NodeLink[] | undefined;
  #linksChangedAt = -Infinity;
  /** What this node says of itself. */
  #own: MemberReport | undefined;
  /** How the pools of other nodes differ, by node. */
  readonly #differences = new Map<string, string>();
  #isLeader = false;
  /** Other machines that answer for own addresses, by their link-layer addresses. */
  readonly #conflicts = new Map<IpAddress, { machine: string; isReported: boolean }>();
  #linkProblem: string | undefined;
  readonly #wakeReader = new WakeUp();
  /** The own Node; `undefined` = unknown. */
  #node: RoutingNode | undefined;
  #isStopped = false;

  /** `isAlone`: without an API server, this node is the only one. */
  constructor(dependencies: RoutingPartDependencies, settings: RoutingSettings, isAlone: boolean) {
    const { clock, configuration: { families }, services } = dependencies;
    this.#clock = clock;
    this.#dependencies = dependencies;
    this.#settings = settings;
    this.#owners = new Layer2Owners(settings.pools);
    this.families = families.map((family) => this.#createFamily(family));
    services.follow((_, keys) => {
      for (const name of keys) {
        this.#dirty.add(name);
        this.#seen({ kind: "Service", name, words: [] });
      }
      if (keys.size > 0) this.#request();
    }, () => {});
    if (isAlone) this.setMember(dependencies.nodeName, { report: undefined });
  }

  /** The nodes that take part; `undefined` = unknown. */
  get live(): ReadonlySet<string> | undefined {
    return this.#members && new Set(this.#members.keys());
  }

  /** The reports of the nodes that take part. */
  get reports(): ReadonlyMap<string, MemberReport> {
    return new Map(
      [...this.#members ?? []].flatMap(([node, report]) => report ? [[node, report]] : []),
    );
  }

  /** What this node says of itself, as JSON; `undefined` until it is known. */
  get report(): string | undefined {
    return this.#own && JSON.stringify(this.#own.json);
  }

  /** Why this node cannot answer, or is not alone, and how other nodes are configured otherwise. */
  get problems(): readonly { readonly node: string; readonly text: string }[] {
    const { nodeName } = this.#dependencies;
    const own = [
      ...lostLinks(this.#own).map((link) =>
        `does not answer in ${link.network}: ${linkText(link)}`
      ),
      ...elsewhere(this.#own).map((pool) =>
        `answers for no address of pool '${pool}': no interface has a network with one`
      ),
      ...[...this.#conflicts].filter(([, { isReported }]) => isReported).map(
        ([address, { machine }]) =>
          `another machine, with link-layer address ${machine}, answers for ${address}`,
      ),
    ];
    return [
      ...own.map((text) => ({ node: nodeName, text })),
      ...[...this.#differences].map(([node, text]) => ({ node, text })),
    ];
  }

  /** Takes whether this process assigns addresses. It reports nodes that are configured otherwise. */
  setLeader(isLeader: boolean): void {
    this.#isLeader = isLeader;
    if (isLeader) { for (const each of this.#differences) this.#reportDifference(...each); }
  }

  /**
   * Reads the interfaces at an interval until the signal is aborted: the kernel reports changes on
   * netlink sockets only, which Deno does not have. Never rejects.
   */
  async watchLinks(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#readLinks();
      const isOften = this.isOwner(this.#dependencies.nodeName) ||
        (this.#links?.some(({ obstacle }) => obstacle) ?? true);
      const ms = isOften ? READ_LINKS_MS : READ_LINKS_IDLE_MS;
      await this.#wakeReader.wait(signal, { clock: this.#clock, ms });
    }
  }

  /** Whether this node may own addresses of some pool, whichever Services there are. */
  get mayAnnounce(): boolean {
    return this.#node !== undefined && mayOwnAddresses(this.#node, this.#settings.pools);
  }

  /** Whether a node owns an address as of the last sync. */
  isOwner(node: string): boolean {
    return this.#owners.isOwner(node);
  }

  /** Calls back after owners, or {@linkcode mayAnnounce}, may have changed. */
  follow(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** The addresses that this node answers for, and those of other nodes. */
  get compared(): Omit<ComparedLayer2, "found"> {
    const owned = new Set(this.families.flatMap(({ addresses }) => [...addresses]));
    const others = [...this.#owners.addresses].sort().filter((address) => !owned.has(address));
    return { owned, others };
  }

  /** Whether an address of the machine is a Service's. */
  ownsAddress(address: IpAddress): boolean {
    const family = this.#family(address);
    if (!family) return false;
    // An earlier run may have left it, for two seconds.
    return family.owns(address) ||
      !family.loop.isComplete &&
        poolOf(this.#settings.pools, address)?.announce === "layer2";
  }

  /** Takes other pools and interfaces. */
  setSettings(settings: RoutingSettings): void {
    this.#settings = settings;
    this.#owners.setPools(settings.pools);
    for (const key of this.#dependencies.services.keys) this.#dirty.add(key);
    this.#wakeReader.call();
    this.#setReport();
    this.#notify();
    this.#seen({ kind: "configuration" });
    this.#request();
  }

  /** Takes a Node, or that it is gone. */
  onNode(name: string, node: RoutingNode | undefined): void {
    this.#owners.setNode(name, node);
    this.#seen({ kind: "Node", name, words: [node ? node.exclusion ?? "is known" : "is gone"] });
    if (name === this.#dependencies.nodeName) {
      this.#node = node;
      this.#setReport();
      this.#notify();
    }
    this.#request();
  }

  /** Takes that a node takes part, and what it says of itself; or that it does not. */
  setMember(
    node: string,
    member: { readonly report: MemberReport | undefined } | undefined,
  ): void {
    const members = this.#members ??= new Map();
    const wasMember = members.has(node);
    const isSame = wasMember === (member !== undefined) &&
      JSON.stringify(members.get(node)?.json) === JSON.stringify(member?.report?.json);
    // The Lease is renewed now and then.
    if (isSame) return;
    if (member) members.set(node, member.report);
    else members.delete(node);
    this.#owners.setReport(node, member?.report);
    if (member && !wasMember && node === this.#dependencies.nodeName) this.#hasJoined = true;
    const words = !member
      ? "answers for addresses no more"
      : wasMember
      ? "can answer for other addresses"
      : "answers for addresses";
    this.#seen({ kind: "Lease", name: node, words: [words] });
    this.#compare(node);
    this.#request();
  }

  /**
   * Gives addresses up for which another machine answers, unless this node was found to own them since a
   * time: their former owner is about to give them up.
   */
  async yieldConflicts(since: number): Promise<void> {
    await Promise.all(this.families.map(async (family) => {
      for (const [address, machine] of await family.backend.findConflicts()) {
        if (machine === undefined) continue;
        const isNew = (this.#ownedAt.get(address) ?? -Infinity) >= since;
        if (isNew || !family.addresses.has(address)) continue;
        this.#yielded.add(address);
        family.hold(address, false);
        this.#dependencies.logger.warn(
          "Gave an address up: this node cannot renew its Lease, and another machine answers for it",
          { address },
        );
      }
    }));
  }

  /** The API server answers again: addresses that this node gave up and still owns are its own again. */
  takeBack(): void {
    for (const address of this.#yielded) {
      const family = this.#family(address);
      if (!family || this.#owners.ownerOf(address) !== this.#dependencies.nodeName) continue;
      this.#ownedAt.set(address, this.#clock.now());
      family.hold(address, true);
    }
    this.#yielded.clear();
  }

  /** The addresses, sorted. */
  view(): readonly OwnedAddressView[] {
    return [...this.#owners.addresses].sort().map((address) => {
      const owner = this.#owners.ownerOf(address);
      const services = this.#owners.servicesAt(address);
      const candidates = owner === undefined ? this.#owners.candidates(address) : [];
      return { address, owner, services, candidates };
    });
  }

  /** Gives every address up at once. */
  async leave(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.families.map((family) => family.leave()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopped = true;
    for (const { backend } of this.families) await backend[Symbol.asyncDispose]();
  }

  #createFamily(family: IpFamily): Layer2Family {
    const { random, routing, controllerOfServices, ...edges } = this.#dependencies;
    const { forwardsItself } = MODE_TRAITS[edges.configuration.mode];
    const logger = edges.logger.with({ ipFamily: family });
    const { layer2: { announceIntervalSeconds } } = this.#settings;
    const parts = { ...edges, random, logger };
    const options = { family, announceIntervalMs: announceIntervalSeconds * 1000 };
    const backend = routing.layer2(parts, options);
    return new Layer2Family(parts, backend, () => this.#refresh(), async (addresses) => {
      const report = await backend.sync(addresses, this.#settings.layer2.interfaces);
      // A mode that forwards by itself can only listen where an address is local.
      const hasMoved = Object.keys(report.operations).length > 0;
      if (hasMoved && forwardsItself) controllerOfServices.requestSync(family);
      return report;
    });
  }

  #family(address: IpAddress): Layer2Family | undefined {
    const family = ipFamilyOf(address);
    return this.families.find((each) => each.family === family);
  }

  #seen(change: ObjectChange): void {
    for (const family of this.families) family.seen(change);
  }

  #request(): void {
    for (const family of this.families) family.request();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  /**
   * Asks at an interval until the signal is aborted whether other machines answer for own addresses, and
   * reports those that do twice: for a moment, a former owner does, too. Never rejects.
   */
  async watchConflicts(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#clock.sleep(CONFLICTS_MS, signal).catch(() => {});
      if (signal.aborted) return;
      try {
        for (const family of this.families) await this.#searchConflicts(family);
      } catch (error) {
        this.#dependencies.logger.verbose(1, "Cannot ask who answers for addresses", { error });
      }
    }
  }

  async #searchConflicts(family: Layer2Family): Promise<void> {
    const { logger } = this.#dependencies;
    for (const address of this.#conflicts.keys()) {
      if (this.#family(address) === family && !family.addresses.has(address)) {
        this.#conflicts.delete(address);
      }
    }
    for (const [address, machine] of await family.backend.findConflicts()) {
      const before = this.#conflicts.get(address);
      const isReported = before?.isReported === true && before.machine === machine;
      if (machine === undefined || !family.addresses.has(address)) {
        this.#conflicts.delete(address);
        if (before?.isReported) logger.info("No other machine answers for an address", { address });
        continue;
      }
      const isSecond = before?.machine === machine;
      this.#conflicts.set(address, { machine, isReported: isSecond });
      if (!isSecond || isReported) continue;
      logger.warn(
        "Another machine answers for an address of this node; take the address from it, or out of " +
          "the pool",
        { address, machine },
      );
      this.#warn(
        "LoadBalancerAddressConflict",
        `Another machine, with link-layer address ${machine}, answers for ${address}`,
      );
    }
  }

  async #readLinks(): Promise<void> {
    const { logger } = this.#dependencies;
    const { interfaces } = this.#settings.layer2;
    let links: readonly NodeLink[];
    try {
      const found = await Promise.all(
        this.families.map(({ backend }) => backend.links(interfaces)),
      );
      links = found.flat();
    } catch (error) {
      const problem = messageOf(error);
      if (problem !== this.#linkProblem) {
        logger.warn("Cannot read the interfaces; what is known of them stays in use", { error });
      }
      this.#linkProblem = problem;
      return;
    }
    this.#linkProblem = undefined;
    if (JSON.stringify(links) === JSON.stringify(this.#links)) return;
    const now = this.#clock.now();
    const isLoss = this.#links?.some((old) =>
      !old.obstacle && !links.some((each) => isSameLink(each, old) && !each.obstacle)
    );
    if (!isLoss && now - this.#linksChangedAt < STEADY_MS) return;
    this.#linksChangedAt = now;
    this.#links = links;
    this.#setReport();
    this.#seen({ kind: "addresses", words: ["interfaces of this node"] });
    for (const { backend } of this.families) backend.recheck();
    this.#request();
    this.#notify();
  }

  /** Says to the other nodes what this one can answer for, and to people what it cannot. */
  #setReport(): void {
    if (!this.#node || !this.#links) return;
    const { logger } = this.#dependencies;
    const before = this.#own;
    const json = memberReport(this.#settings.pools, { node: this.#node, links: this.#links });
    if (JSON.stringify(json) === this.report) return;
    const own = this.#own = readMemberReport(json)!;
    for (const pool of elsewhere(own)) {
      if (elsewhere(before).includes(pool)) continue;
      logger.info(
        "This node answers for no address of a pool: no interface has a network with one",
        { pool },
      );
    }
    for (const node of new Set([...this.#members?.keys() ?? [], ...this.#differences.keys()])) {
      this.#compare(node);
    }
    const [was, is] = [lostLinks(before), lostLinks(own)];
    for (const link of was) {
      if (is.some((each) => isSameLink(each, link))) continue;
      const { network, device } = link;
      logger.info("An interface can answer for addresses again, or is gone", { network, device });
    }
    const news = is.filter((link) => !was.some((each) => isSameLink(each, link)));
    for (const link of news.slice(0, MOST_REPORTED)) {
      const { network, device } = link;
      logger.warn("This node does not answer for addresses by an interface", {
        ...{ network, device, reason: linkText(link) },
      });
      this.#warn(
        "LoadBalancerInterfaceLost",
        `The node does not answer for load balancer addresses of ${network}: ${linkText(link)}`,
      );
    }
  }

  /** Compares the pools of another node with the own ones. */
  #compare(node: string): void {
    const { logger, nodeName } = this.#dependencies;
    const [own, other] = [this.#own, this.#members?.get(node)];
    const found = own && other && node !== nodeName ? poolDifferences(own, other) : [];
    const difference = found.slice(0, MOST_REPORTED).join("; ");
    if (difference === (this.#differences.get(node) ?? "")) return;
    if (difference === "") {
      this.#differences.delete(node);
      return;
    }
    this.#differences.set(node, difference);
    logger.warn("Another node has other pools; it answers only for addresses that it knows", {
      ...{ node, difference },
    });
    if (this.#isLeader) this.#reportDifference(node, difference);
  }

  #reportDifference(node: string, text: string): void {
    const assigning = this.#dependencies.nodeName;
    this.#warn(
      "LoadBalancerPoolsDiffer",
      `The pools of this node are not those of node ${assigning}, which assigns addresses: ${text}`,
      node,
    );
  }

  /** Records an event on a Node. */
  #warn(reason: string, note: string, node = this.#dependencies.nodeName): void {
    this.#dependencies.startUp.events.record({
      ...{ type: "Warning", reason, action: "AnnounceAddress", note },
      regarding: nodeRegarding(node),
    });
  }

  /** Brings the owners up to date, and the families with them. */
  async #refresh(): Promise<void> {
    const { services, nodeName, logger, metrics } = this.#dependencies;
    await forEachInSlices(this.#clock, this.#dirty, (key) => {
      this.#dirty.delete(key);
      this.#owners.setService(key, services.of(key));
    });
    if (this.#isStopped) return;
    this.#owners.setLive(this.live);
    const wasOwner = this.isOwner(nodeName);
    const changes = this.#owners.update();
    if (!wasOwner && this.isOwner(nodeName)) this.#wakeReader.call();
    if (changes.size > 0) this.#notify();
    for (const [address, { before, after }] of changes) {
      this.#yielded.delete(address);
      const family = this.#family(address);
      if (!family) continue;
      const isOwn = after === nodeName;
      if (isOwn !== (before === nodeName)) {
        metrics.its["kube_relay_routing_owner_changes_total"].inc({
          ip_family: family.family,
          change: isOwn ? "gained" : "lost",
        });
        logger.info(isOwn ? "Answering for an address now" : "No longer answering for an address", {
          address,
          ...(before !== undefined && { before }),
          ...(after !== undefined && { after }),
        });
      }
      if (isOwn) this.#ownedAt.set(address, this.#clock.now());
      else this.#ownedAt.delete(address);
      family.hold(address, isOwn);
    }
    // Others have seen it, too, so this node's view of the owners is theirs.
    if (this.#hasJoined) this.takeBack();
    this.#hasJoined = false;
  }
}

/** The links of a node that do not carry packets. */
function lostLinks(report: MemberReport | undefined): readonly NodeLink[] {
  return report?.links.filter(({ obstacle }) => obstacle) ?? [];
}

/** The pools that have no network on a node. */
function elsewhere(report: MemberReport | undefined): readonly string[] {
  return report ? poolsElsewhere(report) : [];
}

function isSameLink(one: NodeLink, other: NodeLink): boolean {
  return one.network === other.network && one.device === other.device;
}
