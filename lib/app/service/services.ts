import type { EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../api/kinds/endpoints.ts";
import type { Service } from "../../api/kinds/service.ts";
import type { ObjectProblem } from "../../api/problem.ts";
import type { Source } from "../../engine/sync_event.ts";
import type { Cidr } from "../../net/cidr.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { runInSlices, urgent } from "../../os/time_slice.ts";
import type { Quarantined, SyncReport } from "../../proxy/data_plane.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { EndpointTracker } from "../../proxy/endpoint_tracker.ts";
import { contestedItems } from "../../proxy/frontend_owners.ts";
import type { AskedHost, KnownHost } from "../../proxy/known_hosts.ts";
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
import { ServiceTracker } from "../../proxy/service_tracker.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { LoopListener, ServiceChange } from "../change_listener.ts";
import type { PlanSettings } from "../run/plan_settings.ts";

/** Samples of the programming latency in one sync. */
const MOST_TRIGGER_TIMES = 100_000;
/** Services drained in one step: about 1 ms of work. */
const SLICE_SIZE = 256;

/** What the plan depends on besides Services and their endpoints. */
type Surroundings = Pick<ProxyState, "node" | "serviceCidrs" | "interfaceAddresses">;

/** The Services of one IP family, from objects to the plan. Starts nothing. */
export class Services implements Source<ProxyPlan, PlanChanges, ServicePortKey, SyncReport> {
  readonly family: IpFamily;
  readonly services: ServiceTracker;
  readonly endpoints: EndpointTracker;
  /** Called when a sync is due. */
  onDue: () => void = () => {};
  readonly #clock: Clock;
  readonly #recorder: LoopListener<ServiceChange, ServicePlan> | undefined;
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
  /** Frontends that another ServicePort owns, by ServicePort. */
  readonly #contested = new Map<ServicePortKey, readonly Quarantined[]>();
  readonly #droppedInternally = new Set<ServicePortKey>();
  readonly #droppedExternally = new Set<ServicePortKey>();

  /** `node`: the state of the own node before its object is known. */
  constructor(
    { clock, recorder }: {
      readonly clock: Clock;
      readonly recorder?: LoopListener<ServiceChange, ServicePlan> | undefined;
    },
    family: IpFamily,
    settings: PlanSettings,
    { node = settings.nodeState(undefined), allowExternalIps = true }: {
      readonly node?: NodeState;
      /** Whether `spec.externalIPs` is honoured. @default {true} */
      readonly allowExternalIps?: boolean;
    } = {},
  ) {
    this.family = family;
    this.#clock = clock;
    this.#recorder = recorder;
    this.#settings = settings;
    this.services = new ServiceTracker({ family, allowExternalIps });
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
    const { node: previous } = { ...this.#surroundings, ...this.#next };
    if (this.#changed({ node: current })) this.#due({ kind: "Node", previous, current });
  }

  /** Takes the ranges of cluster IPs of this family. */
  onServiceCidrs(serviceCidrs: readonly Cidr[]): void {
    if (this.#changed({ serviceCidrs })) this.#dueTo("ServiceCIDR");
  }

  /** Takes the node's own addresses of this family, sorted. */
  onInterfaceAddresses(current: readonly IpAddress[]): void {
    const previous = this.#interfaceAddresses ?? [];
    this.#interfaceAddresses = current;
    const isDue = this.#changed({ interfaceAddresses: current });
    if (isDue) this.#due({ kind: "addresses", previous, current });
  }

  /** Takes the machine that has an address of this family; `undefined` = none that is known. */
  onHost(address: IpAddress, host: KnownHost | undefined): void {
    if (this.#plan.owners.setHost(address, host)) this.#dueTo("machines");
  }

  /** Takes other settings: everything is planned again. */
  onSettings(settings: PlanSettings): void {
    this.#settings = settings;
    this.#hasNewSettings = true;
    this.#dueTo("configuration");
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
    const keys = new Set<ServicePortKey>();
    const problems: ObjectProblem[] = [];
    const triggerTimes: number[] = [];
    for (;;) {
      const services = this.services.drain(SLICE_SIZE);
      const endpoints = this.endpoints.drain(SLICE_SIZE);
      for (const key of services.keys) keys.add(key);
      for (const key of endpoints.keys) keys.add(key);
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
    this.#countDropped(fresh);
    return { fresh, problems };
  }

  /** The backend holds the plan. Adds the frontends that another ServicePort owns to what it lacks. */
  synced(report: SyncReport, { removed, upserted }: PlanChanges): readonly Quarantined[] {
    this.#unconfirmed = undefined;
    for (const key of removed.keys()) this.#contested.delete(key);
    for (const key of upserted) {
      const plan = this.#plan.services.get(key);
      if (plan?.contested) this.#contested.set(key, contestedItems(plan));
      else this.#contested.delete(key);
    }
    return [...report.quarantined, ...[...this.#contested.values()].flat()];
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

  #countDropped({ removed, upserted }: PlanChanges): void {
    for (const key of [...removed.keys(), ...upserted]) {
      const plan = this.#plan.services.get(key);
      note(this.#droppedInternally, key, plan?.internal.kind === "drop");
      note(this.#droppedExternally, key, plan?.external.kind === "drop");
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

  #dueTo(kind: "ServiceCIDR" | "configuration" | "machines"): void {
    this.#due({ kind, previous: undefined, current: undefined });
  }

  #due(cause: ServiceChange): void {
    this.#recorder?.seen(cause);
    this.onDue();
  }
}

function note(set: Set<ServicePortKey>, key: ServicePortKey, isIn: boolean): void {
  if (isIn) set.add(key);
  else set.delete(key);
}
