import type { Lease } from "../../api/kinds/lease.ts";
import { retryBackoff } from "../../controller/sync_runner.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { forEachInSlices } from "../../os/time_slice.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import { poolOf } from "../../routing/address_pool.ts";
import type { ComparedLayer2 } from "../../routing/compare_layer2.ts";
import { Layer2Addresses } from "../../routing/layer2_addresses.ts";
import { Layer2Owners, type OwnerCandidate } from "../../routing/layer2_owner.ts";
import { NodeLiveness, nodeOfLease } from "../../routing/node_liveness.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { limited } from "../changes/change_text.ts";
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

/** The dependencies of the part. */
interface Layer2PartDependencies extends ControllerParts {
  readonly services: AnnouncedServices;
  readonly backends: ControllerParts["backends"];
  readonly routing: RoutingBackends;
}

/** Its settings. */
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
  readonly #isAlone: boolean;
  readonly #owners = new Layer2Owners();
  readonly #addresses: Layer2Addresses;
  #settings: RoutingSettings;
  readonly #liveness = new NodeLiveness();
  readonly #dirty = new Set<ServiceKey>();
  /** Addresses that this node owns but for which another machine answers. */
  readonly #yielded = new Set<IpAddress>();
  /** The nodes with a valid Lease when it was last looked at; `undefined` = unknown. */
  #live: ReadonlySet<string> | undefined;
  #timer: Timer | undefined;
  #isStopped = false;

  constructor(dependencies: Layer2PartDependencies, { settings, isAlone }: Layer2PartOptions) {
    const { clock, configuration: { families }, services } = dependencies;
    this.#clock = clock;
    this.#dependencies = dependencies;
    this.#isAlone = isAlone;
    this.#settings = settings;
    this.#addresses = new Layer2Addresses({ owners: this.#owners }, settings.pools);
    this.families = families.map((family) => this.#createFamily(family));
    services.follow((_, keys) => this.#onServices(keys), () => {});
    if (isAlone) this.#setLive();
  }

  /** Permits syncs. */
  open(): void {
    for (const { loop } of this.families) loop.open();
  }

  /** The nodes with a valid Lease; `undefined` = unknown. */
  get live(): ReadonlySet<string> | undefined {
    return this.#live;
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
    this.#seen({ kind: "configuration", name: "", words: [] });
    this.#request();
  }

  /** Takes a Node, or that it is gone. */
  onNode(name: string, node: RoutingNode | undefined): void {
    this.#owners.setNode(name, node);
    this.#seen({ kind: "Node", name, words: [node ? node.exclusion ?? "is known" : "is gone"] });
    this.#request();
  }

  /** Takes the Lease of a node, or that it was deleted. */
  onLease(lease: Lease, { isDeleted }: { readonly isDeleted: boolean }): void {
    const node = nodeOfLease(lease);
    if (node === undefined) return;
    const { nodeName } = this.#dependencies;
    const now = this.#clock.now();
    // The watch works again: renewals of others may have been missed.
    if (node === nodeName && !this.#live) this.#liveness.restart(now);
    this.#liveness.observe(node, isDeleted ? undefined : lease, { now });
    const isHeld = !isDeleted && (lease.spec.holderIdentity ?? "") !== "";
    if (isHeld && this.#live?.has(node)) return;
    this.#setLive();
  }

  /** Returns held addresses for which another machine answers, and gives them up. */
  async yieldConflicts(): Promise<void> {
    const { logger } = this.#dependencies;
    for (const family of this.families) {
      for (const address of await family.backend.findConflicts()) {
        if (!family.addresses.has(address)) continue;
        this.#yielded.add(address);
        family.hold(address, false);
        family.loop.request();
        logger.warn(
          "Gave an address up: this node cannot renew its Lease, and another machine answers for it",
          { address },
        );
      }
    }
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
    this.#timer?.cancel();
    await Promise.all(this.families.map((family) => family.leave()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
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

  /** Looks at the Leases, and again when the next one expires. */
  #setLive(): void {
    const { nodeName } = this.#dependencies;
    const now = this.#clock.now();
    const live = this.#isAlone ? new Set([nodeName]) : this.#liveness.live(now);
    const before = this.#live;
    // The own Lease as the watch has it shows that the watch works. Without that, Leases of others
    // would seem to expire, too, and every node would take every address.
    this.#live = live.has(nodeName) ? live : undefined;
    this.#timer?.cancel();
    const next = this.#liveness.nextExpiry(now);
    if (next !== undefined && !this.#isStopped) {
      this.#timer = this.#clock.setTimer(next - now, () => this.#setLive());
    }
    if (isSame(before, this.#live)) return;
    const name = `${this.#live?.size ?? "unknown"} nodes`;
    const gone = [...before ?? []].filter((node) => !this.#live?.has(node));
    const added = [...this.#live ?? []].filter((node) => !before?.has(node));
    this.#seen({
      ...{ kind: "Lease", name },
      words: limited([
        ...gone.map((node) => `${node} renews no more`),
        ...added.map((node) => `${node} renews`),
      ]),
    });
    this.#request();
  }

  #seen(change: RoutingChange): void {
    for (const family of this.families) family.seen(change);
  }

  #request(): void {
    for (const { loop } of this.families) loop.request();
  }

  /** Brings the owners up to date, and the families with them. */
  async #refresh(): Promise<void> {
    const { services, nodeName, logger, metrics } = this.#dependencies;
    await forEachInSlices(this.#clock, this.#dirty, (key) => {
      this.#dirty.delete(key);
      this.#addresses.setService(key, services.of(key));
    });
    if (this.#isStopped) return;
    this.#owners.setLive(this.#live);
    const changes = this.#owners.update();
    this.#takeBack();
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
      family.hold(address, isOwn);
      family.loop.request();
    }
  }

  /** Once the owners are known again, those that this node gave up meanwhile are its own again. */
  #takeBack(): void {
    if (!this.#live) return;
    for (const address of this.#yielded) {
      if (this.#owners.ownerOf(address) !== this.#dependencies.nodeName) continue;
      this.#family(address)?.hold(address, true);
    }
    this.#yielded.clear();
  }
}

function isSame(left: ReadonlySet<string> | undefined, right: ReadonlySet<string> | undefined) {
  return left === right ||
    left?.size === right?.size && [...left ?? []].every((each) => right?.has(each));
}
