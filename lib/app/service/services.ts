import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { ENDPOINT_SLICE, type EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS, type Endpoints } from "../../api/kinds/endpoints.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { SERVICE, type Service } from "../../api/kinds/service.ts";
import { SERVICE_CIDR } from "../../api/kinds/service_cidr.ts";
import { type ObjectProblem, ProblemCollector } from "../../api/problem.ts";
import { syncPeriodsOf } from "../../config/configuration.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import type { Source } from "../../engine/sync_event.ts";
import {
  retryBackoff,
  SyncLoop,
  type SyncLoopDependencies,
  type SyncPeriods,
} from "../../engine/sync_loop.ts";
import { RecentTexts } from "../../log/recent_texts.ts";
import { changeHandler } from "../../kube/informer.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { DriftFigures, ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { Cidr } from "../../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import { runInSlices, urgent } from "../../os/time_slice.ts";
import { type Backend, type BackendMode, ignoredDsr } from "../../proxy/backend.ts";
import type { Quarantined, SyncReport } from "../../proxy/data_plane.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { unusedItems } from "../../proxy/edge_settings.ts";
import { EndpointTracker } from "../../proxy/endpoint_tracker.ts";
import { type AskedHost, contestedItems, type KnownHost } from "../../proxy/frontend_owners.ts";
import type { NodeState } from "../../proxy/node_state.ts";
import {
  createProxyPlan,
  mergePlanChanges,
  type MutableProxyPlan,
  type PlanChanges,
  type ProxyPlan,
  type ProxyState,
  updatePlan,
} from "../../proxy/proxy_plan.ts";
import type { ServicePortOptions } from "../../proxy/service_port.ts";
import { ServiceTracker } from "../../proxy/service_tracker.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { SetIndex } from "../../net/set_index.ts";
import {
  type ServiceKey,
  serviceKey,
  serviceKeyOfPort,
  type ServicePortKey,
} from "../../proxy/service_port_name.ts";
import type { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type {
  LoopListener,
  ObjectChange,
  ServiceSyncEvent,
  ServiceSyncListener,
} from "../change_listener.ts";
import type { ControllerParts } from "../controllers.ts";
import type { BackendTable } from "../dependencies.ts";
import { modeSettingsOf } from "../run/plan_settings.ts";
import type { PlanSettings } from "../run/plan_settings.ts";
import type { HostRegistry } from "./host_registry.ts";
import { ALL_NODES, serviceCidrsOf, serviceSubscriptions } from "./service_subscriptions.ts";

/** Samples of the programming latency in one sync. */
const MOST_TRIGGER_TIMES = 100_000;
/** Services drained in one step: about 1 ms of work. */
const SLICE_SIZE = 256;
/** ServicePorts of a Service that a sync names since its slices have other ports. */
const MOST_OTHER_PORTS = 10;

/** What the plan depends on besides Services and their endpoints. */
type Surroundings = Pick<ProxyState, "node" | "serviceCidrs" | "interfaceAddresses">;

/** The Services of one IP family, from objects to the plan. Starts nothing. */
export class Services implements Source<ProxyPlan, PlanChanges, ServicePortKey, SyncReport> {
  readonly family: IpFamily;
  readonly services: ServiceTracker;
  readonly endpoints: EndpointTracker;
  /** Called when a sync is due. */
  onDue: () => void = () => {};
  /** Called for what {@linkcode EndpointTracker.otherPorts} says about the Services that changed. */
  onOtherPorts: (key: ServicePortKey, text: string) => void = () => {};
  readonly #clock: Clock;
  readonly #recorder: LoopListener<ServicePlan> | undefined;
  readonly #plan: MutableProxyPlan;
  #settings: PlanSettings;
  /** Those of the plan. */
  #surroundings: Surroundings;
  /** Those that the plan does not have yet. */
  #next: Partial<Surroundings> = {};
  #interfaceAddresses: readonly IpAddress[] | undefined;
  #isPartial = false;
  #isPlanned = false;
  #hasNewSettings = false;
  /** Whether drained changes are not in the plan yet. */
  #isCollecting = false;
  /** Changes that no backend has confirmed yet, from failed syncs and from the running one. */
  #unconfirmed: PlanChanges | undefined;
  #triggerTimes: number[] = [];
  readonly #mode: BackendMode | undefined;
  /** Frontends that another ServicePort owns, and what the mode ignores, by ServicePort. */
  readonly #lacking = new Map<ServicePortKey, readonly Quarantined[]>();
  readonly #withoutEndpoints = new SetIndex<ServiceKey, ServicePortKey>();
  readonly #droppedInternally = new Set<ServicePortKey>();
  readonly #droppedExternally = new Set<ServicePortKey>();

  /** `node`: the state of the own node before its object is known. */
  constructor(
    { clock, recorder }: {
      readonly clock: Clock;
      readonly recorder?: LoopListener<ServicePlan> | undefined;
    },
    family: IpFamily,
    settings: PlanSettings,
    { node = settings.nodeState(undefined), mode, ...options }:
      & Omit<ServicePortOptions, "family">
      & {
        readonly node?: NodeState;
        /** What it ignores is reported. @default {nothing is} */
        readonly mode?: BackendMode;
      } = {},
  ) {
    this.#mode = mode;
    this.family = family;
    this.#clock = clock;
    this.#recorder = recorder;
    this.#settings = settings;
    this.services = new ServiceTracker({ family, ...options });
    this.endpoints = new EndpointTracker(family, node.name, clock.wallNow());
    this.#surroundings = { node, serviceCidrs: [], interfaceAddresses: [] };
    this.#plan = createProxyPlan(settings.planOptions(family, node));
  }

  /** The plan of the last {@linkcode collectChanges}. */
  get plan(): ProxyPlan {
    return this.#plan;
  }

  /** The node's own addresses of this family; `undefined` until known. */
  get interfaceAddresses(): readonly IpAddress[] | undefined {
    return this.#interfaceAddresses;
  }

  /** The machines whose addresses a Service asks for. */
  get hosts(): readonly AskedHost[] {
    return this.#plan.owners.askedHosts;
  }

  /** Whether changes wait for the next sync. */
  get pending(): boolean {
    return this.services.pending > 0 || this.endpoints.undrained > 0 || this.#hasNewSettings ||
      this.#unconfirmed !== undefined || Object.keys(this.#next).length > 0 ||
      this.#plan.owners.hasNewHosts || this.#isCollecting;
  }

  onService(previous: Service | undefined, current: Service | undefined): void {
    if (this.services.update(previous, current)) this.#due({ kind: "Service", previous, current });
  }

  onSlice(previous: EndpointSlice | undefined, current: EndpointSlice | undefined): void {
    const isDue = this.endpoints.updateSlice(previous, current);
    if (isDue) this.#due({ kind: "EndpointSlice", previous, current });
  }

  onEndpoints(previous: Endpoints | undefined, current: Endpoints | undefined): void {
    const isDue = this.endpoints.updateEndpoints(previous, current);
    if (isDue) this.#due({ kind: "Endpoints", previous, current });
  }

  onNode(current: NodeState): void {
    const { name } = current;
    if (this.#changed({ node: current })) this.#due({ kind: "Node", name });
  }

  /** Takes the ranges of cluster IPs of this family. */
  onServiceCidrs(serviceCidrs: readonly Cidr[]): void {
    if (this.#changed({ serviceCidrs })) this.#due({ kind: "ServiceCIDR" });
  }

  /** Takes the node's own addresses of this family, sorted. */
  onInterfaceAddresses(current: readonly IpAddress[]): void {
    this.#interfaceAddresses = current;
    if (this.#changed({ interfaceAddresses: current })) this.#due({ kind: "addresses" });
  }

  /** Takes the machine that has an address of this family; `undefined` = none that is known. */
  onHost(address: IpAddress, host: KnownHost | undefined): void {
    if (this.#plan.owners.setHost(address, host)) this.#due({ kind: "machines" });
  }

  /** Takes other settings: everything is planned again. */
  onSettings(settings: PlanSettings): void {
    this.#settings = settings;
    this.#hasNewSettings = true;
    this.#due({ kind: "configuration" });
  }

  /** Takes whether objects are still being read for the first time: plans may then lack Services. */
  setPartial(isPartial: boolean): void {
    this.#isPartial = isPartial;
  }

  /** As {@linkcode Source.collectChanges}; the changes are those since the last {@linkcode synced}. */
  async collectChanges(
    again: readonly ServicePortKey[],
  ): Promise<{ readonly changes: PlanChanges; readonly problems: readonly ObjectProblem[] }> {
    const isPartial = this.#isPartial;
    this.#isCollecting = true;
    try {
      const { fresh, problems } = await runInSlices(urgent(this.#clock), this.#update());
      const merged = this.#unconfirmed ? mergePlanChanges(this.#unconfirmed, fresh) : fresh;
      const retried = again.filter((key) => this.#plan.services.has(key));
      const changes = retried.length === 0
        ? merged
        : { ...merged, upserted: new Set([...merged.upserted, ...retried]) };
      this.#unconfirmed = changes;
      return { changes: isPartial ? { ...changes, isPartial } : changes, problems };
    } finally {
      this.#isCollecting = false;
    }
  }

  /** Brings the plan up to date, in steps. Changes that arrive while it drains are drained, too. */
  *#update(): Generator<void, { fresh: PlanChanges; problems: readonly ObjectProblem[] }> {
    const changed = new Set<ServiceKey>();
    const keys = new Set<ServicePortKey>();
    const problems: ObjectProblem[] = [];
    const triggerTimes: number[] = [];
    for (;;) {
      const services = this.services.drain(SLICE_SIZE);
      const endpoints = this.endpoints.drain(SLICE_SIZE);
      for (const key of services.keys) keys.add(key);
      for (const key of endpoints.keys) keys.add(key);
      for (const key of services.keys) changed.add(serviceKeyOfPort(key));
      for (const key of endpoints.services) changed.add(key);
      // Not push(...list): some 100,000 items are too many arguments.
      for (const time of endpoints.triggerTimes) triggerTimes.push(time);
      for (const problem of services.problems) problems.push(problem);
      for (const problem of endpoints.problems) problems.push(problem);
      if (this.services.pending === 0 && this.endpoints.undrained === 0) break;
      yield;
    }
    // Those that came while it drained belong to this sync, as their causes do.
    const before = this.#surroundings;
    const { node, ...others } = this.#surroundings = { ...before, ...this.#next };
    const hasNew = Object.keys(this.#next).length > 0;
    this.#next = {};
    this.#recorder?.drained();
    const options = this.#settings.planOptions(this.family, node);
    const everything = !this.#isPlanned || this.#hasNewSettings || before.node.name !== node.name ||
      before.node.zone !== node.zone ||
      // In mode NodeCIDR the Node brings the detector, which every ServicePlan depends on.
      !deepEqual(options.localTraffic, this.#plan.shared.localTraffic);
    this.#isPlanned = true;
    this.#hasNewSettings = false;
    const fresh = yield* updatePlan(
      this.#plan,
      { services: this.services.ports, endpoints: this.endpoints.endpoints, node, ...others },
      { keys, shared: hasNew || everything, everything },
      options,
      this.#recorder && ((previous, next) => this.#recorder!.planned(previous, next)),
    );
    // While syncs fail, changes accumulate.
    this.#triggerTimes = this.#triggerTimes.concat(triggerTimes).slice(0, MOST_TRIGGER_TIMES);
    this.#notePlans(fresh);
    for (const problem of this.#unusedItems(fresh)) problems.push(problem);
    for (const service of changed) {
      for (const key of [...this.#withoutEndpoints.at(service)].slice(0, MOST_OTHER_PORTS)) {
        for (const text of this.endpoints.otherPorts(key)) this.onOtherPorts(key, text);
      }
    }
    return { fresh, problems };
  }

  /**
   * The backend holds the plan. Adds the frontends that another ServicePort owns to what it lacks, and
   * what the mode ignores.
   */
  synced(report: SyncReport, { removed, upserted }: PlanChanges): readonly Quarantined[] {
    this.#unconfirmed = undefined;
    for (const key of removed.keys()) this.#lacking.delete(key);
    for (const key of upserted) {
      const plan = this.#plan.services.get(key);
      const ignored = plan && this.#mode && ignoredDsr(this.#mode, plan.annotations);
      const items = [
        ...plan ? contestedItems(plan) : [],
        ...ignored === undefined ? [] : [{ key, reason: ignored }],
      ];
      if (items.length > 0) this.#lacking.set(key, items);
      else this.#lacking.delete(key);
    }
    return [...report.quarantined, ...[...this.#lacking.values()].flat()];
  }

  /** Returns once the times at which the objects of the last syncs were changed. */
  takeTriggerTimes(): readonly number[] {
    const times = this.#triggerTimes;
    this.#triggerTimes = [];
    return times;
  }

  /** The number of ServicePorts with policy Local whose endpoints are all on other nodes. */
  noLocalEndpoints(): { readonly internal: number; readonly external: number } {
    return { internal: this.#droppedInternally.size, external: this.#droppedExternally.size };
  }

  #notePlans({ removed, upserted }: PlanChanges): void {
    for (const key of [...removed.keys(), ...upserted]) {
      const plan = this.#plan.services.get(key);
      if (plan?.endpoints.length === 0) this.#withoutEndpoints.add(serviceKeyOfPort(key), key);
      else this.#withoutEndpoints.delete(serviceKeyOfPort(key), key);
      this.#droppedInternally.delete(key);
      this.#droppedExternally.delete(key);
      if (plan?.internal.kind === "drop") this.#droppedInternally.add(key);
      if (plan?.external.kind === "drop") this.#droppedExternally.add(key);
    }
  }

  /** Returns the items of a Service's annotations for endpoints that it does not have. */
  unusedItems({ name, edge }: Pick<ServicePlan, "edge" | "name">): ReturnType<typeof unusedItems> {
    if (!edge?.weights && !edge?.unixSockets) return [];
    const key = serviceKey(name);
    return unusedItems(edge, (places) => this.endpoints.unusedPlaces(key, places));
  }

  *#unusedItems({ upserted }: PlanChanges): Generator<ObjectProblem> {
    const seen = new Set<ServiceKey>();
    for (const key of upserted) {
      const plan = this.#plan.services.get(key);
      if (!plan?.edge) continue;
      const object = serviceKey(plan.name);
      if (seen.has(object)) continue;
      seen.add(object);
      const problems = new ProblemCollector("Service", object);
      for (const { name, items } of this.unusedItems(plan)) {
        problems.report(
          `metadata.annotations['${name}']`,
          items,
          "The Service has no such endpoint",
        );
      }
      yield* problems.problems;
    }
  }

  /** Returns whether they differ from the last known ones. */
  #changed(surroundings: Partial<Surroundings>): boolean {
    const known = { ...this.#surroundings, ...this.#next };
    const next = { ...known, ...surroundings };
    if (deepEqual(known, next)) return false;
    this.#next = { ...this.#next, ...surroundings };
    return true;
  }

  #due(cause: ObjectChange): void {
    this.#recorder?.seen(cause);
    this.onDue();
  }
}

/** Passes objects from the informers to the families, and to the registry the machines that they name. */
export function followServices(
  informers: InformerSet,
  nodeName: string,
  families: readonly Services[],
  { endpointsFallback, serviceCidrs, onNode, onNodeDeleted, afterChange, hosts, hasAllNodes }: {
    /** As in {@linkcode serviceSubscriptions}. */
    readonly endpointsFallback: boolean;
    /** Ranges from the command line; they replace the API's ServiceCIDRs. */
    readonly serviceCidrs: readonly Cidr[];
    readonly hosts: HostRegistry;
    /** Whether the Nodes are those of the whole cluster; otherwise the others are not asked for. */
    readonly hasAllNodes: boolean;
    /** Called for each state of the own Node; after a deletion the last state remains. */
    readonly onNode?: (node: Node) => void;
    readonly onNodeDeleted?: () => void;
    readonly afterChange?: () => void;
  },
): void {
  const subscriptions = serviceSubscriptions(nodeName, endpointsFallback);
  const follow = <T extends KubeObject>(
    spec: KindSpec<T>,
    take: (previous: T | undefined, current: T | undefined) => void,
    options = subscriptions.get(spec),
  ) => {
    const handler = changeHandler<T>((previous, current) => {
      take(previous, current);
      afterChange?.();
    });
    informers.subscribe(spec, options, handler);
  };
  const passServiceCidrs = () => {
    for (const services of families) {
      services.onServiceCidrs(serviceCidrsOf(informers, serviceCidrs, services.family));
    }
  };
  follow(SERVICE, (previous, current) => {
    for (const services of families) services.onService(previous, current);
  });
  follow(ENDPOINT_SLICE, (previous, current) => {
    for (const services of families) services.onSlice(previous, current);
    hosts.onSlice(previous, current);
  });
  follow(ENDPOINTS, (previous, current) => {
    for (const services of families) services.onEndpoints(previous, current);
    hosts.onEndpoints(previous, current);
  });
  follow(NODE, (_, current) => {
    if (current) onNode?.(current);
    else onNodeDeleted?.();
  });
  follow(SERVICE_CIDR, passServiceCidrs);
  if (serviceCidrs.length > 0) passServiceCidrs();
  if (!hasAllNodes) return;
  follow(NODE, (previous, current) => {
    const { metadata: { name } } = current ?? previous!;
    if (name !== nodeName) hosts.onNode(name, current);
  }, ALL_NODES);
}

/** Longest time between two syncs, as in kube-proxy for modes with tables. */
const MAX_SYNC_PERIOD_MS = 3_600_000;

/** The log messages of syncs. */
const TEXTS = {
  synced: "Synced proxy rules",
  failed: "Cannot sync proxy rules; the last applied state stays and the changes are tried again",
  quarantined: "Service port is in quarantine; it is tried again, all others work",
  released: "Service port is out of quarantine",
  item: "servicePort",
};

interface ServiceFamilyDependencies extends SyncLoopDependencies {
  readonly backend: Backend;
  readonly metrics: Pick<
    ProxyMetrics,
    "syncQueued" | "syncFinished" | "syncSucceeded" | "syncFailed"
  >;
  /** Called for each sync, in this order. May be extended later. */
  readonly serviceListeners: readonly ServiceSyncListener[];
}

/**
 * Keeps one family's data plane in step with its Services. The families are independent, so a failed one
 * does not affect the other.
 */
export class ServiceFamily {
  readonly family: IpFamily;
  readonly backend: Backend;
  readonly services: Services;
  readonly loop: SyncLoop<ProxyPlan, PlanChanges, ServicePortKey, SyncReport>;
  readonly #dependencies: ServiceFamilyDependencies;
  #isStarted = false;
  #isComplete = false;

  constructor(
    dependencies: ServiceFamilyDependencies,
    services: Services,
    periods: SyncPeriods,
    recorder?: ServiceSyncListener,
  ) {
    this.family = services.family;
    this.backend = dependencies.backend;
    this.services = services;
    this.#dependencies = dependencies;
    this.loop = new SyncLoop(dependencies, {
      id: { controller: "service", family: services.family },
      dataPlane: dependencies.backend,
      source: services,
      listeners: [this, ...(recorder ? [recorder] : [])],
      texts: TEXTS,
      periods,
    });
    services.onDue = () => this.loop.request();
    const { logger } = dependencies;
    const logged = new RecentTexts(dependencies);
    services.onOtherPorts = (servicePort, found) => {
      const text = found.replace(/ \d+ endpoints?,/, "");
      if (!logged.isNews(`${servicePort} ${text}`)) return;
      logger.warn("Service port has no endpoints; its Service has some for other ports", {
        servicePort,
        found,
      });
    };
  }

  /** Adopts the state of the machine. Syncs nothing before {@linkcode open} or {@linkcode openEarly}. */
  async start(): Promise<void> {
    await this.loop.start();
    this.#isStarted = true;
  }

  /** Called when all objects are known: other objects on the machine may be removed from now on. */
  open(): void {
    if (this.#isComplete) return;
    this.#isComplete = true;
    this.services.setPartial(false);
    this.loop.open();
  }

  /**
   * Starts syncs with the objects known so far, if the mode supports it; see {@linkcode
   * Backend.takesPartialPlans}.
   */
  openEarly(): void {
    if (!this.#isStarted || this.loop.isOpen || !this.backend.takesPartialPlans) return;
    this.services.setPartial(true);
    this.loop.open();
  }

  /** Counts the syncs, and passes them on. */
  async on(event: ServiceSyncEvent): Promise<void> {
    const { clock, metrics, serviceListeners } = this.#dependencies;
    const { family, services } = this;
    switch (event.kind) {
      case "started":
      case "queued":
        metrics.syncQueued(family, clock.wallNow());
        break;
      case "synced": {
        const { at, quarantined, report, seconds } = event;
        metrics.syncFinished(family, { seconds, full: report.full });
        metrics.syncSucceeded(family, {
          at,
          quarantined: quarantined.length,
          programmingSeconds: services.takeTriggerTimes().map((trigger) =>
            Math.max(0, at - trigger) / 1000
          ),
          noLocalEndpoints: services.noLocalEndpoints(),
          ...(report.rules && { rules: report.rules }),
        });
        break;
      }
      case "failed":
        metrics.syncFinished(family, event);
        metrics.syncFailed(family);
    }
    for (const listener of serviceListeners) {
      const done = listener.on(event);
      if (event.kind === "syncing") await done;
    }
  }

  /** Takes the addresses of the machine, sorted; those that the backend put there are not the node's. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    const ofNode = addresses.filter(({ address, interfaceName }) =>
      ipFamilyOf(address) === this.family && !this.backend.ownsAddress(address, interfaceName)
    );
    this.services.onInterfaceAddresses([...new Set(ofNode.map(({ address }) => address))]);
  }

  /** Whether a plan was applied, so that it decides about every address. */
  get hasSynced(): boolean {
    return this.loop.lastSync !== undefined;
  }

  /** Gives up addresses of an earlier run, once the backend has started; see {@linkcode Backend.disown}. */
  async disown(isForeign: (address: IpAddress) => boolean): Promise<readonly IpAddress[]> {
    if (!this.#isStarted) return [];
    return await this.backend.disown?.(isForeign) ?? [];
  }
}

/** Makes a family of a run. Starts nothing. `traffic`: `undefined` = nothing is counted. */
export function createServiceFamily(
  parts: Omit<ControllerParts, "controllerOfServices">,
  family: IpFamily,
  settings: PlanSettings,
  traffic: ServiceTrafficTable | undefined,
): ServiceFamily {
  const { clock, configuration, changes, judges, metrics, random } = parts;
  const { proxy, mode } = configuration;
  const logger = parts.logger.with({ ipFamily: family });
  const minPeriodMs = syncPeriodsOf(proxy, mode).minSyncPeriod;
  const loop = { controller: "service", family } as const;
  const judge = judges.get(family);
  const recorder = changes.followServices(loop, minPeriodMs);
  const services = new Services({ clock, recorder }, family, settings, {
    allowExternalIps: featureEnabled(proxy, "AllowServiceExternalIPs"),
    areAnnotationsChecked: configuration.relay.manifests.length > 0,
    mode,
  });
  const backend = (parts.backends as Required<BackendTable>)[mode]({
    ...parts,
    logger,
    onDrift(figures: DriftFigures) {
      metrics.driftFound(loop, figures);
      changes.driftFound(loop, figures);
      // The repair may have left out a Service, which is to be reported and tried again.
      services.onDue();
    },
    onHealth: (healthChanges) => changes.healthChanged(family, healthChanges),
  }, {
    family,
    ...modeSettingsOf(configuration),
    ...(traffic && { traffic: traffic.of(family) }),
    ...(judge && { judge }),
  });
  return new ServiceFamily(
    { ...parts, logger, backend },
    services,
    { minPeriodMs, maxPeriodMs: MAX_SYNC_PERIOD_MS, retryMs: retryBackoff(random) },
    recorder,
  );
}
