/**
 * Assigns addresses to Services while this process is the only one in the cluster that does.
 *
 * @module
 */
import { collectionPath } from "../../api/kind.ts";
import type { Namespace } from "../../api/kinds/namespace.ts";
import { ROUTED_SERVICE, type RoutedService } from "../../api/kinds/routed_service.ts";
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { EventSink, KubeEvent } from "../../kube/event.ts";
import type { Informer } from "../../kube/informer.ts";
import { LinkedAbort } from "../../kube/linked_abort.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { overlap, rangeOf } from "../../net/address_range.ts";
import type { Cidr } from "../../net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../../net/ip_address.ts";
import { Backoff } from "../../os/backoff.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { forEachInSlices, runInSlices } from "../../os/time_slice.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { namespacedNameOf, type ServiceKey, serviceKey } from "../../proxy/service_port_name.ts";
import { AddressAllocator, type AddressAssignment } from "../../routing/address_allocator.ts";
import { type AddressPool, poolsWithout } from "../../routing/address_pool.ts";
import { addressRequestOf } from "../../routing/address_request.ts";
import type { RoutingNode } from "../../routing/routing_node.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { WakeUp } from "../../os/wake_up.ts";

/** What assigning needs of its run. */
interface AssignerEdges {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly events: EventSink;
}

type AssignerSettings = Pick<
  RoutingSettings,
  "pools" | "loadBalancerClasses" | "defaultLoadBalancerClass"
>;

/** Its settings at the start, and the objects that it assigns by. */
interface AddressAssignerOptions {
  readonly settings: AssignerSettings;
  readonly services: Pick<Informer<RoutedService>, "get" | "values">;
  /** Absent if no pool selects namespaces. */
  readonly namespaces?: Pick<Informer<Namespace>, "get" | "values"> | undefined;
  /** Called after each write. Must not throw. */
  readonly onWritten?: (outcome: WriteOutcome) => void;
  /** Called when {@linkcode AddressAssigner.poolProblems} changed. Must not throw. */
  readonly onPoolProblems?: () => void;
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
  readonly #edges: AssignerEdges;
  readonly #options: AddressAssignerOptions;
  /** Changes that wait: assignments must not change while they are made. */
  readonly #changed = new Set<ServiceKey>();
  readonly #namespaces = new Set<string>();
  readonly #nodes = new Map<string, Pick<RoutingNode, "addresses" | "podCidrs">>();
  readonly #changedNodes = new Set<string>();
  readonly #wakeUp = new WakeUp();
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

  constructor(edges: AssignerEdges, options: AddressAssignerOptions) {
    this.#edges = edges;
    this.#clock = edges.clock;
    this.#logger = edges.logger.with({ component: "address_assigner" });
    this.#options = options;
    this.#settings = options.settings;
    this.#pools = options.settings.pools;
  }

  /** Why the last write failed; `undefined` if it did not. */
  get problem(): string | undefined {
    return this.#writer?.problem;
  }

  /** Why addresses are left out of pools, in sentences that begin with the name of the pool. */
  get poolProblems(): readonly string[] {
    return this.#problems;
  }

  /** The Services that lack what they ask for; `undefined` if another process assigns. */
  get refused():
    | readonly { readonly key: ServiceKey; readonly reasons: readonly string[] }[]
    | undefined {
    const allocator = this.#allocator;
    return allocator && [...this.#options.services.values()].flatMap((service) => {
      const key = serviceKey(namespacedNameOf(service));
      const reasons = allocator.assignment(key)?.refusals.map(({ message }) => message) ?? [];
      return reasons.length === 0 ? [] : [{ key, reasons }];
    });
  }

  /** Takes a Service that changed or is gone. */
  onService(service: RoutedService): void {
    if (!this.#allocator) return;
    this.#changed.add(serviceKey(namespacedNameOf(service)));
    this.#wakeUp.call();
  }

  /** Takes a Namespace that changed or is gone. */
  onNamespace({ metadata: { name } }: Namespace): void {
    if (!this.#allocator) return;
    this.#namespaces.add(name);
    this.#wakeUp.call();
  }

  /** Takes a Node, or that it is gone. Its addresses and ranges of pods are never assigned. */
  setNode(name: string, node: Pick<RoutingNode, "addresses" | "podCidrs"> | undefined): void {
    const before = this.#nodes.get(name);
    if (node) this.#nodes.set(name, node);
    else this.#nodes.delete(name);
    if (this.#allocator && `${before?.addresses ?? []}` !== `${node?.addresses ?? []}`) {
      this.#changedNodes.add(name);
      this.#wakeUp.call();
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

  /** Whether a range has addresses of a pool. */
  #concerns(cidr: Cidr): boolean {
    const block = rangeOf(cidr);
    return this.#settings.pools.some(({ ranges }) => ranges.some((each) => overlap(each, block)));
  }

  /** Takes other settings. Begins again: Services keep the addresses of their status. */
  setSettings(settings: AssignerSettings): void {
    const used = (
      { pools, loadBalancerClasses, defaultLoadBalancerClass }: AssignerSettings,
    ) => [pools, loadBalancerClasses, defaultLoadBalancerClass];
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
    this.#options.onPoolProblems?.();
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
    const events = new AssignmentEvents(this.#edges.events);
    while (!signal.aborted) {
      if (this.#isOutdated) this.#setPools();
      using term = this.#term = new LinkedAbort(signal);
      await this.#lead(client, events, term.signal);
    }
  }

  async #lead(client: StatusClient, events: AssignmentEvents, signal: AbortSignal): Promise<void> {
    const { services, namespaces, onWritten } = this.#options;
    const allocator = this.#allocator = new AddressAllocator(this.#pools);
    using work = new LinkedAbort(signal);
    const writer = this.#writer = new StatusWriter(this.#edges, {
      ...{ client, signal: work.signal, services, onWritten },
      assignment: (key) => allocator.assignment(key),
    });
    const assign = async () => {
      // The events that wait for an update that does not end may be of any Service.
      using limit = new LinkedAbort(signal);
      const timer = this.#clock.setTimer(LONGEST_UPDATE_MS, () => {
        limit.abort(new Error(`An update has not ended within ${LONGEST_UPDATE_MS / 1000} s`));
      });
      try {
        const changed = await this.#assign(allocator, limit.signal);
        await forEachInSlices(this.#clock, changed, (key) => {
          events.report(key, services.get(key), allocator.assignment(key));
          writer.add(key);
        }, limit.signal);
      } catch (error) {
        if (!signal.aborted) throw error;
      } finally {
        timer.cancel();
      }
    };
    try {
      await this.#clock.sleep(SETTLE_MS, signal).catch(() => {});
      for (const service of services.values()) this.onService(service);
      for (const namespace of namespaces?.values() ?? []) this.onNamespace(namespace);
      for (const name of this.#nodes.keys()) this.#changedNodes.add(name);
      while (!signal.aborted) {
        await assign();
        await this.#wakeUp.wait(signal);
      }
    } finally {
      work.abort(undefined);
      this.#forgetUpdate();
      this.#allocator = undefined;
      this.#writer = undefined;
      this.#changed.clear();
      this.#namespaces.clear();
      this.#changedNodes.clear();
      await writer.ended();
    }
  }

  /** Returns the Services whose assignment or status may have changed. */
  async #assign(
    allocator: AddressAllocator,
    signal: AbortSignal,
  ): Promise<ReadonlySet<ServiceKey>> {
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
    return await runInSlices(this.#clock, allocator.updateInSteps(), signal);
  }
}

/** Reports on Services which addresses they got, or why they got none. Repeats nothing. */
class AssignmentEvents {
  readonly #events: EventSink;
  /** The last refusals of each Service that has some, as one text. */
  readonly #refused = new Map<ServiceKey, string>();
  /** The addresses that each Service got last, or had in its status when it was seen first. */
  readonly #assigned = new Map<ServiceKey, ReadonlySet<string>>();

  constructor(events: EventSink) {
    this.#events = events;
  }

  /** Takes an assignment that may have changed. */
  report(
    key: ServiceKey,
    service: RoutedService | undefined,
    assignment: AddressAssignment | undefined,
  ): void {
    const { addresses, refusals = [] } = assignment ?? {};
    const text = refusals.map(({ message }) => message).join("\n");
    const isNews = (this.#refused.get(key) ?? "") !== text;
    if (text === "") this.#refused.delete(key);
    else this.#refused.set(key, text);
    if (!service || !addresses) this.#assigned.delete(key);
    if (!service) return;
    for (const { kind, message } of isNews ? refusals : []) {
      const reason = kind === "exhausted"
        ? "LoadBalancerPoolExhausted"
        : "LoadBalancerAddressRefused";
      this.#record(service, "Warning", reason, message);
    }
    if (!addresses) return;
    // A status that cannot be written, or that another program clears, is no new assignment.
    const ingress = service.status?.loadBalancer?.ingress ?? [];
    const known = this.#assigned.get(key) ?? new Set(ingress.flatMap(({ ip }) => ip ?? []));
    this.#assigned.set(key, new Set(addresses));
    const added = addresses.filter((address) => !known.has(address));
    if (added.length === 0) return;
    this.#record(service, "Normal", "LoadBalancerAddressAssigned", `Assigned ${added.join(", ")}`);
  }

  #record(
    { metadata: { name, namespace = "default", uid } }: RoutedService,
    type: KubeEvent["type"],
    reason: string,
    note: string,
  ): void {
    const regarding = {
      ...{ apiVersion: "v1", kind: "Service", name, namespace },
      ...(uid !== undefined && { uid }),
    };
    this.#events.record({ type, reason, note, action: "AssignLoadBalancerAddress", regarding });
  }
}

/** The requests of a writer. */
type StatusClient = Pick<KubeClient, "patch">;

/** The result of a write. `conflict`: the Service had changed, or is gone. */
type WriteOutcome = "written" | "conflict" | "failed";

/** Writes in flight at the same time. */
const PARALLEL = 4;
/** Waits after a write that failed. */
const RETRY = { initialMs: 1_000, maxMs: 60_000, resetAfterMs: 120_000 };
/** Writes of one Service without a wait: after more, another program is changing it again and again. */
const FREE_WRITES = 5;
/** Longest time between two writes that belong together: the longest wait, with its jitter. */
const CALM_MS = 2 * RETRY.maxMs + RETRY.resetAfterMs;
/** Answers that are about the API server, not about one Service. */
const SERVER_TROUBLE: ReadonlySet<number> = new Set([401, 408, 429, 503, 504]);

/** How often a Service was written of late. */
interface Pace {
  readonly backoff: Backoff;
  writes: number;
  lastAt: number;
}

/**
 * Writes the addresses of Services into their status. A write applies only to the version of the Service
 * that it was decided by; the event of a newer version decides again.
 */
class StatusWriter {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #options: ConstructorParameters<typeof StatusWriter>[1];
  readonly #backoff: Backoff;
  readonly #waiting = new Set<ServiceKey>();
  readonly #writing = new Map<ServiceKey, Promise<void>>();
  /** The version that was written last, until its successor is seen. */
  readonly #tried = new Map<ServiceKey, string | undefined>();
  /** The one that was written last comes last. */
  readonly #paces = new Map<ServiceKey, Pace>();
  /** Services that are not written for a while. */
  readonly #resting = new Map<ServiceKey, Timer>();
  readonly #random: () => number;
  #warnedAt = -Infinity;
  /** Why the last write of each Service failed. */
  readonly #failed = new Map<ServiceKey, string>();

  constructor(
    { clock, logger, random }: Pick<AssignerEdges, "clock" | "logger" | "random">,
    options: {
      readonly client: StatusClient;
      /** Ends all writes. */
      readonly signal: AbortSignal;
      readonly services: Pick<Informer<RoutedService>, "get">;
      /** What the status has to have; `undefined` = it is left alone. */
      readonly assignment: (key: ServiceKey) => AddressAssignment | undefined;
      readonly onWritten: ((outcome: WriteOutcome) => void) | undefined;
    },
  ) {
    this.#clock = clock;
    this.#logger = logger.with({ component: "status_writer" });
    this.#options = options;
    this.#random = random;
    this.#backoff = new Backoff(random, RETRY);
  }

  /** Why writes fail; `undefined` if none does. */
  get problem(): string | undefined {
    const [problem] = this.#failed.values();
    return problem;
  }

  /** Compares the status of a Service with what it has to have, and writes the difference. */
  add(key: ServiceKey): void {
    if (this.#resting.has(key)) return;
    if (this.#difference(key) === undefined) {
      // It may be gone, or right by now.
      if (!this.#writing.has(key)) this.#note(key, undefined);
      return;
    }
    this.#waiting.add(key);
    this.#startWrites();
  }

  /** Resolves when no write is in flight, after the signal was aborted. */
  async ended(): Promise<void> {
    for (const timer of this.#resting.values()) timer.cancel();
    await Promise.all(this.#writing.values());
  }

  #startWrites(): void {
    for (const key of this.#waiting) {
      if (this.#options.signal.aborted || this.#writing.size >= PARALLEL) return;
      if (this.#writing.has(key)) continue;
      this.#waiting.delete(key);
      // The end of the rest compares it again.
      if (this.#resting.has(key)) continue;
      const writing = this.#write(key).finally(() => {
        this.#writing.delete(key);
        this.#startWrites();
      });
      this.#writing.set(key, writing);
    }
  }

  /** Returns the Service and its new addresses; `undefined` if there is nothing to write. */
  #difference(
    key: ServiceKey,
  ): { readonly service: RoutedService; readonly addresses: readonly IpAddress[] } | undefined {
    const service = this.#options.services.get(key);
    const assignment = service && this.#options.assignment(key);
    if (!assignment) {
      this.#tried.delete(key);
      return undefined;
    }
    const { resourceVersion } = service.metadata;
    if (this.#tried.has(key) && this.#tried.get(key) === resourceVersion) return undefined;
    this.#tried.delete(key);
    const { addresses } = assignment;
    const ingress = service.status?.loadBalancer?.ingress ?? [];
    // No node would serve an address of mode Proxy. Old API servers have no modes.
    const current = new Set(
      ingress.map(({ ip, ipMode }) => ipMode === "Proxy" ? undefined : tryParseIpAddress(ip ?? "")),
    );
    // The order of addresses is no reason to write.
    const isRight = current.size === addresses?.length &&
      addresses.every((address) => current.has(address));
    return addresses && !isRight ? { service, addresses } : undefined;
  }

  /** Never rejects. */
  async #write(key: ServiceKey): Promise<void> {
    const found = this.#difference(key);
    if (!found) return;
    const { client, signal, onWritten } = this.#options;
    const { service, addresses } = found;
    const { namespace, name } = namespacedNameOf(service);
    const { resourceVersion } = service.metadata;
    this.#tried.set(key, resourceVersion);
    const path = `${collectionPath(ROUTED_SERVICE, namespace)}/${name}/status`;
    try {
      // The API server refuses the patch if the Service has changed since.
      const metadata = resourceVersion === undefined ? {} : { resourceVersion };
      const status = { loadBalancer: { ingress: addresses.map((ip) => ({ ip, ipMode: "VIP" })) } };
      await client.patch(path, { metadata, status }, signal);
      this.#logger.verbose(1, "Wrote the addresses of a Service", { service: key, addresses });
      this.#note(key, undefined);
      onWritten?.("written");
      this.#limitWrites(key);
    } catch (error) {
      if (signal.aborted) return;
      const isOld = error instanceof ApiError && (error.status === 409 || error.isNotFound());
      onWritten?.(isOld ? "conflict" : "failed");
      // After a conflict, the event of the newer version has the Service assigned again.
      if (isOld) return;
      this.#note(key, error);
      this.#tried.delete(key);
      // Others can be written: a webhook or a rule of the API is against this one.
      if (error instanceof ApiError && !SERVER_TROUBLE.has(error.status)) this.#rest(key);
      else await this.#wait(key);
    }
  }

  /** Another controller that writes the status too, or a tenant, must not cause an endless loop. */
  #limitWrites(key: ServiceKey): void {
    const pace = this.#paceOf(key);
    if (++pace.writes <= FREE_WRITES) return;
    this.#rest(key);
    const now = this.#clock.now();
    if (now - this.#warnedAt < CALM_MS) return;
    this.#warnedAt = now;
    this.#logger.warn(
      "The addresses in the status of a Service change again and again; they are written less often. " +
        "Check whether another load balancer controller writes them too",
      { service: key },
    );
  }

  /** Writes a Service later, and others meanwhile. */
  #rest(key: ServiceKey): void {
    // The answer to a write may come after the end.
    if (this.#options.signal.aborted) return;
    const timer = this.#clock.setTimer(this.#paceOf(key).backoff.next(this.#clock.now()), () => {
      this.#resting.delete(key);
      this.add(key);
    });
    this.#resting.set(key, timer);
  }

  #paceOf(key: ServiceKey): Pace {
    const now = this.#clock.now();
    for (const [old, { lastAt }] of this.#paces) {
      if (now - lastAt < CALM_MS) break;
      this.#paces.delete(old);
    }
    const pace = this.#paces.get(key) ??
      { backoff: new Backoff(this.#random, RETRY), writes: 0, lastAt: now };
    pace.lastAt = now;
    this.#paces.delete(key);
    this.#paces.set(key, pace);
    return pace;
  }

  /** Keeps its place among the writes, so that a server in trouble is not asked more often. */
  async #wait(key: ServiceKey): Promise<void> {
    const { signal } = this.#options;
    await this.#clock.sleep(this.#backoff.next(this.#clock.now()), signal).catch(() => {});
    this.#waiting.add(key);
  }

  #note(key: ServiceKey, error: unknown): void {
    const before = this.#failed.size;
    if (error === undefined) this.#failed.delete(key);
    else this.#failed.set(key, messageOf(error));
    const isNews = (before === 0) !== (this.#failed.size === 0);
    if (!isNews) return;
    if (error === undefined) this.#logger.info("The status of Services can be written again");
    else {
      this.#logger.warn("Cannot write the status of a Service; trying again", {
        ...{ service: key, error },
      });
    }
  }
}
