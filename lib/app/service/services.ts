import type { EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../api/kinds/endpoints.ts";
import type { Service } from "../../api/kinds/service.ts";
import type { Cidr } from "../../net/cidr.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { TimeSlice, urgent } from "../../os/time_slice.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { Source } from "../../engine/sync_event.ts";
import type { Quarantined, SyncReport } from "../../proxy/data_plane.ts";
import { contestedItems } from "../../proxy/frontend_owners.ts";
import { drainInSlices } from "../../proxy/drain.ts";
import { EndpointsChangeTracker } from "../../proxy/endpoints_changes.ts";
import type { AskedHost, KnownHost } from "../../proxy/known_hosts.ts";
import type { NodeState } from "../../proxy/node_state.ts";
import type { ObjectProblem } from "../../api/problem.ts";
import {
  createProxyPlan,
  mergePlanChanges,
  type MutableProxyPlan,
  type PlanChanges,
  type ProxyPlan,
  updatePlanInSlices,
} from "../../proxy/proxy_plan.ts";
import { createProxyState, type MutableProxyState } from "../../proxy/proxy_state.ts";
import { ServiceChangeTracker } from "../../proxy/service_changes.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { LoopListener, ServiceChange } from "../change_listener.ts";
import type { PlanSettings } from "../run/plan_settings.ts";

interface CollectedChanges {
  readonly changes: PlanChanges;
  /** Values of changed objects that could not be used. */
  readonly problems: readonly ObjectProblem[];
}

interface ProxyPipelineDependencies {
  readonly clock: Clock;
  readonly recorder?: Pick<LoopListener<ServiceChange, ServicePlan>, "drained" | "planned">;
}

export interface ProxyPipelineOptions {
  readonly family: IpFamily;
  /** The state of the own node before its object is known. */
  readonly node: NodeState;
  readonly settings: PlanSettings;
  /** Whether `spec.externalIPs` is honoured. @default {true} */
  readonly allowExternalIps?: boolean;
}

/** Samples of the programming latency in one sync. */
const MOST_TRIGGER_TIMES = 100_000;

/** The stages between informers and backend, for one IP family. Has state, but starts nothing itself. */
export class ProxyPipeline implements Source<ProxyPlan, PlanChanges, ServicePortKey, SyncReport> {
  readonly services: ServiceChangeTracker;
  readonly endpoints: EndpointsChangeTracker;
  readonly #clock: Clock;
  readonly #recorder: ProxyPipelineDependencies["recorder"];
  readonly #options: ProxyPipelineOptions;
  readonly #state: MutableProxyState;
  readonly #plan: MutableProxyPlan;
  #settings: PlanSettings;
  #isPartial = false;
  /** Whether the settings differ from those of the plan. */
  #hasNewSettings = false;
  /** Whether drained changes are not in the plan yet. */
  #isCollecting = false;
  #node: NodeState | undefined;
  #serviceCidrs: readonly Cidr[] | undefined;
  #interfaceAddresses: readonly IpAddress[] | undefined;
  /** Changes that no backend has confirmed yet, from failed syncs and from the running one. */
  #unconfirmed: PlanChanges | undefined;
  #triggerTimes: number[] = [];
  /** Frontends that another ServicePort owns, by ServicePort. */
  readonly #contested = new Map<ServicePortKey, readonly Quarantined[]>();
  readonly #droppedInternally = new Set<ServicePortKey>();
  readonly #droppedExternally = new Set<ServicePortKey>();

  constructor({ clock, recorder }: ProxyPipelineDependencies, options: ProxyPipelineOptions) {
    const { family, node, settings, allowExternalIps = true } = options;
    this.#clock = clock;
    this.#recorder = recorder;
    this.#options = options;
    this.#settings = settings;
    this.services = new ServiceChangeTracker({ family, allowExternalIps });
    this.endpoints = new EndpointsChangeTracker({
      family,
      nodeName: node.name,
      startedAtMs: clock.wallNow(),
    });
    this.#state = createProxyState(node);
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

  /** Whether changes wait for the next sync. */
  get pending(): boolean {
    return this.services.pending > 0 || this.endpoints.changed ||
      this.#unconfirmed !== undefined || this.#hasNewSettings || this.#hasNewSurroundings ||
      this.#plan.owners.hasNewHosts || this.#isCollecting;
  }

  /** Takes whether objects are still being read for the first time: plans may then lack Services. */
  setPartial(isPartial: boolean): void {
    this.#isPartial = isPartial;
  }

  /** Replaces the settings; the next sync plans everything again. */
  setSettings(settings: PlanSettings): void {
    this.#settings = settings;
    this.#hasNewSettings = true;
  }

  /** Takes the own Node; returns whether a sync is due. */
  setNode(node: NodeState): boolean {
    const before = this.#node ?? this.#state.node;
    this.#node = node;
    return !deepEqual(before, node);
  }

  /** Takes the ranges of cluster IPs of this family; returns whether a sync is due. */
  setServiceCidrs(cidrs: readonly Cidr[]): boolean {
    const before = this.#serviceCidrs ?? this.#state.serviceCidrs;
    this.#serviceCidrs = cidrs;
    return !deepEqual(before, cidrs);
  }

  /** Takes the node's own addresses of this family, sorted; returns whether a sync is due. */
  setInterfaceAddresses(addresses: readonly IpAddress[]): boolean {
    const before = this.#interfaceAddresses ?? this.#state.interfaceAddresses;
    this.#interfaceAddresses = addresses;
    return !deepEqual(before, addresses);
  }

  /**
   * Takes the machine that has an address; `undefined` = none that is known. Returns whether a sync
   * is due.
   */
  setHost(address: IpAddress, host: KnownHost | undefined): boolean {
    return this.#plan.owners.setHost(address, host);
  }

  /** The machines whose addresses a Service asks for. */
  get hosts(): readonly AskedHost[] {
    return this.#plan.owners.askedHosts;
  }

  /** Whether the node, its addresses or the ranges differ from those of the plan. */
  get #hasNewSurroundings(): boolean {
    const { node, serviceCidrs, interfaceAddresses } = this.#state;
    const planned = [node, serviceCidrs, interfaceAddresses];
    const known = [this.#node, this.#serviceCidrs, this.#interfaceAddresses];
    return known.some((value, index) => value !== undefined && !deepEqual(value, planned[index]));
  }

  /**
   * Drains the trackers into state and plan. Returns the changes since the last {@linkcode
   * synced}; `again` names ServicePorts to retry even if unchanged.
   */
  async collectChanges(again: readonly ServicePortKey[]): Promise<CollectedChanges> {
    this.#isCollecting = true;
    try {
      return await this.#collect(again);
    } finally {
      this.#isCollecting = false;
    }
  }

  async #collect(again: readonly ServicePortKey[]): Promise<CollectedChanges> {
    const recorder = this.#recorder;
    const isPartial = this.#isPartial;
    const slice = new TimeSlice(urgent(this.#clock));
    const pause = () => slice.pause();
    const { dirty, triggerTimes, problems } = await drainInSlices(this, this.#state, {
      changes: {
        ...(this.#node && { node: this.#node }),
        ...(this.#serviceCidrs && { serviceCidrs: this.#serviceCidrs }),
        ...(this.#interfaceAddresses && { interfaceAddresses: this.#interfaceAddresses }),
      },
      pause,
      ...(recorder && { onDrained: () => recorder.drained() }),
    });
    const options = this.#settings.planOptions(this.#options.family, this.#state.node);
    // In mode NodeCIDR the Node brings the detector, which every ServicePlan depends on.
    const isAsBefore = !this.#hasNewSettings &&
      deepEqual(options.localTraffic, this.#plan.shared.localTraffic);
    this.#hasNewSettings = false;
    const fresh = await updatePlanInSlices(
      this.#plan,
      this.#state,
      isAsBefore ? dirty : { ...dirty, shared: true, everything: true },
      {
        ...options,
        pause,
        ...(recorder && { onPlanned: (previous, next) => recorder.planned(previous, next) }),
      },
    );
    // While syncs fail, changes accumulate.
    this.#triggerTimes = this.#triggerTimes.concat(triggerTimes).slice(0, MOST_TRIGGER_TIMES);
    this.#countDropped(fresh);
    const merged = this.#unconfirmed ? mergePlanChanges(this.#unconfirmed, fresh) : fresh;
    const retried = again.filter((key) => this.#plan.services.has(key));
    const changes = retried.length === 0
      ? merged
      : { ...merged, upserted: new Set([...merged.upserted, ...retried]) };
    this.#unconfirmed = changes;
    return { changes: isPartial ? { ...changes, isPartial } : changes, problems };
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

  #countDropped(changes: PlanChanges): void {
    for (const key of changes.removed.keys()) {
      this.#droppedInternally.delete(key);
      this.#droppedExternally.delete(key);
    }
    for (const key of changes.upserted) {
      const plan = this.#plan.services.get(key);
      if (!plan) continue;
      note(this.#droppedInternally, key, plan.internal.kind === "drop");
      note(this.#droppedExternally, key, plan.external.kind === "drop");
    }
  }

  /** Updates the service tracker; returns whether a sync is due. */
  onService(previous: Service | undefined, current: Service | undefined): boolean {
    return this.services.update(previous, current);
  }

  /** Updates the endpoints tracker with a slice; returns whether a sync is due. */
  onEndpointSlice(slice: EndpointSlice, verb: "set" | "delete"): boolean {
    return this.endpoints.updateSlice(slice, verb);
  }

  /** Updates the endpoints tracker with an Endpoints object; returns whether a sync is due. */
  onEndpoints(endpoints: Endpoints, verb: "set" | "delete"): boolean {
    return this.endpoints.updateEndpoints(endpoints, verb);
  }
}

function note(set: Set<ServicePortKey>, key: ServicePortKey, present: boolean): void {
  if (present) set.add(key);
  else set.delete(key);
}
