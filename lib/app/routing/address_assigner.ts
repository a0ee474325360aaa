/**
 * Assigns addresses to Services while this process is the only one in the cluster that does.
 *
 * @module
 */
import type { Namespace } from "../../api/kinds/namespace.ts";
import type { RoutedService } from "../../api/kinds/routed_service.ts";
import type { EventSink } from "../../kube/event.ts";
import type { Informer } from "../../kube/informer.ts";
import { LinkedAbort } from "../../kube/linked_abort.ts";
import type { Logger } from "../../log/logger.ts";
import { rangeOf } from "../../net/address_range.ts";
import { type Cidr, cidrFamilyOf } from "../../net/cidr.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { forEachInSlices, runInSlices } from "../../os/time_slice.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { namespacedNameOf, type ServiceKey, serviceKey } from "../../proxy/service_port_name.ts";
import { AddressAllocator } from "../../routing/address_allocator.ts";
import { type AddressPool, overlap, poolsWithout } from "../../routing/address_pool.ts";
import { addressRequestOf } from "../../routing/address_request.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { AssignmentEvents } from "./assignment_events.ts";
import { type StatusClient, StatusWriter, type WriteOutcome } from "./status_writer.ts";

/** The dependencies of {@linkcode AddressAssigner}. */
interface AddressAssignerDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly events: EventSink;
}

/** The settings that assignments depend on. */
type AssignerSettings = Pick<
  RoutingSettings,
  "pools" | "loadBalancerClass" | "defaultLoadBalancerClass"
>;

/** Its settings at the start, and the objects that it assigns by. */
interface AddressAssignerOptions {
  readonly settings: AssignerSettings;
  readonly services: Pick<Informer<RoutedService>, "get" | "values">;
  /** Absent if no pool selects namespaces. */
  readonly namespaces?: Pick<Informer<Namespace>, "get" | "values"> | undefined;
  /** Called after each write. Must not throw. */
  readonly onWritten?: (outcome: WriteOutcome) => void;
}

/** A Service that lacks what it asks for. */
export interface RefusedService {
  readonly key: ServiceKey;
  readonly reasons: readonly string[];
}

/** The last writes of a former leader arrive within this time. */
const SETTLE_MS = 1_000;
/** The addresses of ten thousand Services are assigned in seconds. */
const LONGEST_UPDATE_MS = 60_000;
/** Nodes that come within this time are taken out of the pools together: a list has thousands. */
const GATHER_MS = 100;

/** Assigns addresses and has them written, from {@linkcode lead} to the end of its signal. */
export class AddressAssigner {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #dependencies: AddressAssignerDependencies;
  readonly #options: AddressAssignerOptions;
  /** Changes that wait: assignments must not change while they are made. */
  readonly #changed = new Set<ServiceKey>();
  readonly #namespaces = new Set<string>();
  readonly #nodes = new Map<string, Pick<RoutingNode, "addresses" | "podCidrs">>();
  readonly #changedNodes = new Set<string>();
  #wake = Promise.withResolvers<void>();
  #settings: AssignerSettings;
  /** The ranges of pods and cluster IPs, besides those of Nodes. */
  #taken: ReadonlyMap<Cidr, string> = new Map();
  /** The pools without {@linkcode #taken} and the ranges of Nodes. */
  #pools: readonly AddressPool[];
  /** Whether ranges of Nodes in the pools have changed since. */
  #isOutdated = false;
  #updating: Timer | undefined;
  /** Why addresses are left out of pools. */
  #problems: readonly string[] = [];
  /** Ends the work with the current pools. */
  #term: LinkedAbort | undefined;
  /** Absent while another process assigns. */
  #allocator: AddressAllocator | undefined;
  #writer: StatusWriter | undefined;

  constructor(dependencies: AddressAssignerDependencies, options: AddressAssignerOptions) {
    this.#dependencies = dependencies;
    this.#clock = dependencies.clock;
    this.#logger = dependencies.logger.with({ component: "address_assigner" });
    this.#options = options;
    this.#settings = options.settings;
    this.#pools = options.settings.pools;
  }

  /** Why the last write failed; `undefined` if it did not. */
  get problem(): string | undefined {
    return this.#writer?.problem;
  }

  /** The Services that lack what they ask for; `undefined` if another process assigns. */
  get refused(): readonly RefusedService[] | undefined {
    const allocator = this.#allocator;
    if (!allocator) return undefined;
    return [...this.#options.services.values()].flatMap((service) => {
      const key = serviceKey(namespacedNameOf(service));
      const refusals = allocator.assignment(key)?.refusals ?? [];
      return refusals.length === 0
        ? []
        : [{ key, reasons: refusals.map(({ message }) => message) }];
    });
  }

  /** Takes a Service that changed or is gone. */
  onService(service: RoutedService): void {
    if (!this.#allocator) return;
    this.#changed.add(serviceKey(namespacedNameOf(service)));
    this.#wake.resolve();
  }

  /** Takes a Namespace that changed or is gone. */
  onNamespace({ metadata: { name } }: Namespace): void {
    if (!this.#allocator) return;
    this.#namespaces.add(name);
    this.#wake.resolve();
  }

  /** Takes a Node, or that it is gone. Its addresses and ranges of pods are never assigned. */
  setNode(name: string, node: Pick<RoutingNode, "addresses" | "podCidrs"> | undefined): void {
    const before = this.#nodes.get(name);
    if (node) this.#nodes.set(name, node);
    else this.#nodes.delete(name);
    if (this.#allocator && `${before?.addresses ?? []}` !== `${node?.addresses ?? []}`) {
      this.#changedNodes.add(name);
      this.#wake.resolve();
    }
    const [had, has] = [before?.podCidrs ?? [], node?.podCidrs ?? []];
    if (`${had}` !== `${has}` && [...had, ...has].some((each) => this.#concerns(each))) {
      this.#isOutdated = true;
      if (!this.#allocator) return;
      this.#updating ??= this.#clock.setTimer(GATHER_MS, () => this.#update());
    }
  }

  /** Takes the ranges that have another use, in words, such as those of cluster IPs and pods. */
  setTaken(taken: ReadonlyMap<Cidr, string>): void {
    this.#taken = taken;
    this.#update();
  }

  #update(): void {
    if (this.#setPools()) this.#term?.abort(undefined);
  }

  /** Whether a range has addresses of a pool, and is in none that has another use anyway. */
  #concerns(cidr: Cidr): boolean {
    const block = { family: cidrFamilyOf(cidr), ...rangeOf(cidr) };
    return this.#settings.pools.some(({ ranges }) => ranges.some((each) => overlap(each, block))) &&
      !this.#taken.keys().some((each) =>
        cidrFamilyOf(each) === block.family && rangeOf(each).first <= block.first &&
        block.last <= rangeOf(each).last
      );
  }

  /** Takes other settings. Begins again: Services keep the addresses of their status. */
  setSettings(settings: AssignerSettings): void {
    const used = (
      { pools, loadBalancerClass, defaultLoadBalancerClass }: AssignerSettings,
    ) => [pools, loadBalancerClass, defaultLoadBalancerClass];
    const isSame = deepEqual(used(settings), used(this.#settings));
    this.#settings = settings;
    if (isSame) return;
    this.#setPools();
    this.#term?.abort(undefined);
  }

  /** Returns whether other ranges are left out of the pools than before. */
  #setPools(): boolean {
    this.#forgetUpdate();
    this.#isOutdated = false;
    const taken = new Map(this.#taken);
    for (const { podCidrs } of this.#nodes.values()) {
      for (const cidr of podCidrs) taken.getOrInsert(cidr, "a range of pods");
    }
    const { pools, problems } = poolsWithout(this.#settings.pools, taken);
    this.#pools = pools;
    if (`${problems}` === `${this.#problems}`) return false;
    const news = new Set(problems).difference(new Set(this.#problems));
    this.#problems = problems;
    for (const reason of news) this.#logger.warn("Left addresses out of a pool", { reason });
    return true;
  }

  #forgetUpdate(): void {
    this.#updating?.cancel();
    this.#updating = undefined;
  }

  /**
   * Assigns until the signal is aborted; resolves then. The status of Services is the only memory, so a
   * new leader begins with what it has. Rejects if an update fails or does not end: another process
   * has to lead.
   */
  async lead(client: StatusClient, signal: AbortSignal): Promise<void> {
    const events = new AssignmentEvents(this.#dependencies.events);
    while (!signal.aborted) {
      if (this.#isOutdated) this.#setPools();
      using term = this.#term = new LinkedAbort(signal);
      await this.#lead(client, { signal: term.signal, events });
    }
  }

  async #lead(
    client: StatusClient,
    { signal, events }: { readonly signal: AbortSignal; readonly events: AssignmentEvents },
  ): Promise<void> {
    const { services, namespaces, onWritten } = this.#options;
    const wake = () => this.#wake.resolve();
    signal.addEventListener("abort", wake, { once: true });
    const allocator = this.#allocator = new AddressAllocator(this.#pools);
    using work = new LinkedAbort(signal);
    const writer = this.#writer = new StatusWriter(this.#dependencies, {
      ...{ client, signal: work.signal, services, onWritten },
      assignment: (key) => allocator.assignment(key),
    });
    try {
      await this.#clock.sleep(SETTLE_MS, signal).catch(() => {});
      for (const service of services.values()) this.onService(service);
      for (const namespace of namespaces?.values() ?? []) this.onNamespace(namespace);
      for (const name of this.#nodes.keys()) this.#changedNodes.add(name);
      while (!signal.aborted) {
        this.#wake = Promise.withResolvers();
        await this.#assignInTime(
          signal,
          (limit) => this.#assign(allocator, { writer, events, signal: limit }),
        );
        await this.#wake.promise;
      }
    } finally {
      work.abort(undefined);
      signal.removeEventListener("abort", wake);
      this.#forgetUpdate();
      this.#allocator = undefined;
      this.#writer = undefined;
      this.#changed.clear();
      this.#namespaces.clear();
      this.#changedNodes.clear();
      await writer.ended();
    }
  }

  /** Rejects if an update does not end: the events that wait for it may be of any Service. */
  async #assignInTime(
    signal: AbortSignal,
    assign: (limit: AbortSignal) => Promise<void>,
  ): Promise<void> {
    using limit = new LinkedAbort(signal);
    const timer = this.#clock.setTimer(LONGEST_UPDATE_MS, () => {
      limit.abort(new Error(`An update has not ended within ${LONGEST_UPDATE_MS / 1000} s`));
    });
    try {
      await assign(limit.signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      timer.cancel();
    }
  }

  async #assign(
    allocator: AddressAllocator,
    { writer, events, signal }: {
      readonly writer: StatusWriter;
      readonly events: AssignmentEvents;
      readonly signal: AbortSignal;
    },
  ): Promise<void> {
    if (this.#isOutdated) this.#update();
    signal.throwIfAborted();
    const { services, namespaces } = this.#options;
    const settings = this.#settings;
    for (const name of this.#namespaces) {
      const namespace = namespaces?.get(name);
      allocator.setNamespace(name, namespace && (namespace.metadata.labels ?? {}));
    }
    this.#namespaces.clear();
    for (const name of this.#changedNodes) {
      allocator.setNode(name, this.#nodes.get(name)?.addresses ?? []);
    }
    this.#changedNodes.clear();
    await forEachInSlices(this.#clock, this.#changed, (key) => {
      this.#changed.delete(key);
      const service = services.get(key);
      allocator.setService(key, service && addressRequestOf(service, settings));
    }, signal);
    const changed = await runInSlices(this.#clock, allocator.updateInSteps(), signal);
    await forEachInSlices(this.#clock, changed, (key) => {
      events.report(key, { service: services.get(key), assignment: allocator.assignment(key) });
      writer.add(key);
    }, signal);
  }
}
