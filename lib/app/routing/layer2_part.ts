import { retryBackoff } from "../../controller/sync_runner.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { forEachInSlices } from "../../os/time_slice.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import { poolOf } from "../../routing/address_pool.ts";
import type { ComparedLayer2 } from "../../routing/compare_layer2.ts";
import { Layer2Addresses } from "../../routing/layer2_addresses.ts";
import { Layer2Owners, mayOwnAddresses, type OwnerCandidate } from "../../routing/layer2_owner.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { ChangeRecorder } from "../changes/change_recorder.ts";
import type { ControllerParts } from "../controllers.ts";
import type { AnnouncedServices } from "./announced_services.ts";
import { Layer2Family } from "./layer2_family.ts";
import type { RoutingBackends } from "./routing_backends.ts";
import { ROUTING_WORDS, type RoutingChange } from "./routing_words.ts";

/** Time between two syncs: an address has to move within a second. */
const MIN_SYNC_PERIOD_MS = 100;
/** Longest time from one sync to the next. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

interface Layer2PartDependencies extends ControllerParts {
  readonly services: AnnouncedServices;
  readonly backends: ControllerParts["backends"];
  readonly routing: RoutingBackends;
}

interface Layer2PartOptions {
  readonly settings: RoutingSettings;
  /** Without an API server, this node is the only one. */
  readonly isAlone: boolean;
}

/** Who answers for which address, as of the last sync. */
export interface OwnedAddressView {
  readonly address: IpAddress;
  readonly owner: string | undefined;
  readonly services: readonly ServiceKey[];
  readonly candidates: readonly OwnerCandidate[];
}

/** Announces addresses by layer 2: decides whether this node answers, for both families. */
export class Layer2Part {
  readonly families: readonly Layer2Family[];
  readonly #clock: Clock;
  readonly #dependencies: Layer2PartDependencies;
  readonly #owners = new Layer2Owners();
  readonly #addresses: Layer2Addresses;
  #settings: RoutingSettings;
  readonly #dirty = new Set<ServiceKey>();
  /** Addresses that this node owns but for which another machine answers. */
  readonly #yielded = new Set<IpAddress>();
  /** When this node was last found to own an address. */
  readonly #ownedAt = new Map<IpAddress, number>();
  /** Whether this node began to take part since the last sync. */
  #hasJoined = false;
  readonly #listeners: (() => void)[] = [];
  /** The nodes that take part; `undefined` = unknown. */
  #members: Set<string> | undefined;
  /** The own Node; `undefined` = unknown. */
  #node: RoutingNode | undefined;
  #isStopped = false;

  constructor(dependencies: Layer2PartDependencies, { settings, isAlone }: Layer2PartOptions) {
    const { clock, configuration: { families }, services } = dependencies;
    this.#clock = clock;
    this.#dependencies = dependencies;
    this.#settings = settings;
    this.#addresses = new Layer2Addresses({ owners: this.#owners }, settings.pools);
    this.families = families.map((family) => this.#createFamily(family));
    services.follow((_, keys) => this.#onServices(keys), () => {});
    if (isAlone) this.setMember(dependencies.nodeName, true);
  }

  /** Permits syncs. */
  open(): void {
    for (const { loop } of this.families) loop.open();
  }

  /** The nodes that take part; `undefined` = unknown. */
  get live(): ReadonlySet<string> | undefined {
    return this.#members;
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
    const owned = new Set(this.families.flatMap(({ addresses }) => [...addresses.keys()]));
    const others = [...this.#addresses.addresses].sort().filter((address) => !owned.has(address));
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
    this.#addresses.setPools(settings.pools);
    for (const key of this.#dependencies.services.keys) this.#dirty.add(key);
    for (const family of this.families) family.setInterfaces(settings.layer2.interfaces);
    this.#notify();
    this.#seen({ kind: "configuration", name: "", words: [] });
    this.#request();
  }

  /** Takes a Node, or that it is gone. */
  onNode(name: string, node: RoutingNode | undefined): void {
    this.#owners.setNode(name, node);
    this.#seen({ kind: "Node", name, words: [node ? node.exclusion ?? "is known" : "is gone"] });
    if (name === this.#dependencies.nodeName) {
      this.#node = node;
      this.#notify();
    }
    this.#request();
  }

  /** Takes whether a node takes part. */
  setMember(node: string, isMember: boolean): void {
    const members = this.#members ??= new Set();
    if (members.has(node) === isMember) return;
    if (isMember) members.add(node);
    else members.delete(node);
    if (isMember && node === this.#dependencies.nodeName) this.#hasJoined = true;
    const words = [isMember ? "answers for addresses" : "answers for addresses no more"];
    this.#seen({ kind: "Lease", name: node, words });
    this.#request();
  }

  /**
   * Gives addresses up for which another machine answers, unless this node was found to own them since a
   * time: their former owner is about to give them up.
   */
  async yieldConflicts({ since }: { readonly since: number }): Promise<void> {
    await Promise.all(this.families.map((family) => this.#yieldConflicts(family, since)));
  }

  /** The API server answers again: addresses that this node gave up and still owns are its own again. */
  takeBack(): void {
    for (const address of this.#yielded) {
      const family = this.#family(address);
      if (!family || this.#owners.ownerOf(address) !== this.#dependencies.nodeName) continue;
      this.#ownedAt.set(address, this.#clock.now());
      family.hold(address, true);
      family.loop.request();
    }
    this.#yielded.clear();
  }

  /** The addresses, sorted. Candidates are those of now. */
  view(): readonly OwnedAddressView[] {
    return [...this.#addresses.addresses].sort().map((address) => this.explain(address)!);
  }

  /** Explains one address; `undefined` if layer 2 does not announce it. */
  explain(address: IpAddress): OwnedAddressView | undefined {
    const services = this.#addresses.servicesAt(address);
    if (services.length === 0) return undefined;
    const candidates = this.#owners.candidates(address);
    return { address, owner: this.#owners.ownerOf(address), services, candidates };
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
    const { changes, random, routing, controllerOfServices, ...edges } = this.#dependencies;
    const { forwardsItself } = MODE_TRAITS[edges.configuration.mode];
    const logger = edges.logger.with({ ipFamily: family });
    const { layer2: { interfaces, announceIntervalSeconds } } = this.#settings;
    const recorder = new ChangeRecorder({ clock: this.#clock, log: changes }, {
      ...ROUTING_WORDS,
      loop: { controller: "routing", family },
      waitMs: MIN_SYNC_PERIOD_MS,
    });
    const backend = routing.layer2(
      { ...edges, logger, random },
      { family, announceIntervalMs: announceIntervalSeconds * 1000 },
    );
    return new Layer2Family({ ...edges, logger, backend, recorder }, {
      interfaces,
      refresh: () => this.#refresh(),
      // A mode that forwards by itself can only listen where an address is local.
      onMoved: () => forwardsItself && controllerOfServices.requestSync(family),
      runner: {
        minPeriodMs: MIN_SYNC_PERIOD_MS,
        maxPeriodMs: MAX_SYNC_PERIOD_MS,
        retryMs: retryBackoff(random),
      },
    });
  }

  #family(address: IpAddress): Layer2Family | undefined {
    const family = ipFamilyOf(address);
    return this.families.find((each) => each.family === family);
  }

  #onServices(keys: ReadonlySet<ServiceKey>): void {
    for (const name of keys) {
      this.#dirty.add(name);
      this.#seen({ kind: "Service", name, words: [] });
    }
    if (keys.size > 0) this.#request();
  }

  async #yieldConflicts(family: Layer2Family, since: number): Promise<void> {
    for (const address of await family.backend.findConflicts()) {
      const isNew = (this.#ownedAt.get(address) ?? -Infinity) >= since;
      if (isNew || !family.addresses.has(address)) continue;
      this.#yielded.add(address);
      family.hold(address, false);
      family.loop.request();
      this.#dependencies.logger.warn(
        "Gave an address up: this node cannot renew its Lease, and another machine answers for it",
        { address },
      );
    }
  }

  #seen(change: RoutingChange): void {
    for (const family of this.families) family.seen(change);
  }

  #request(): void {
    for (const { loop } of this.families) loop.request();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  /** Brings the owners up to date, and the families with them. */
  async #refresh(): Promise<void> {
    const { services, nodeName, logger, metrics } = this.#dependencies;
    await forEachInSlices(this.#clock, this.#dirty, (key) => {
      this.#dirty.delete(key);
      this.#addresses.setService(key, services.of(key));
    });
    if (this.#isStopped) return;
    this.#owners.setLive(this.#members && new Set(this.#members));
    const changes = this.#owners.update();
    if (changes.size > 0) this.#notify();
    for (const [address, { before, after }] of changes) {
      this.#yielded.delete(address);
      const family = this.#family(address);
      if (!family) continue;
      const isOwn = after === nodeName;
      if (isOwn !== (before === nodeName)) {
        metrics.routing.layer2Moved(family.family, isOwn ? "gained" : "lost");
        logger.info(isOwn ? "Answering for an address now" : "No longer answering for an address", {
          address,
          ...(before !== undefined && { before }),
          ...(after !== undefined && { after }),
        });
      }
      if (isOwn) this.#ownedAt.set(address, this.#clock.now());
      else this.#ownedAt.delete(address);
      family.hold(address, isOwn);
      family.loop.request();
    }
    // Others have seen it, too, so this node's view of the owners is theirs.
    if (this.#hasJoined) this.takeBack();
    this.#hasJoined = false;
  }
}
