/**
 * The proxy of one IP family: pipeline, loop and backend. The families are independent, so a
 * failed one does not affect the other.
 *
 * @module
 */
import type { EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../api/kinds/endpoints.ts";
import type { Service } from "../../api/kinds/service.ts";
import type { Cidr } from "../../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { SyncReport } from "../../proxy/data_plane.ts";
import type { KnownHost } from "../../proxy/known_hosts.ts";
import type { NodeState } from "../../proxy/node_state.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { SyncLoop, type SyncLoopDependencies } from "../../engine/sync_loop.ts";
import type { SyncRunnerOptions } from "../../engine/sync_runner.ts";
import type { LoopListener, ServiceChange } from "../change_listener.ts";
import type { PlanSettings } from "../run/plan_settings.ts";
import { ProxyPipeline, type ProxyPipelineOptions } from "./proxy_pipeline.ts";
import type { ServiceSyncEvent, ServiceSyncListener } from "./service_sync_event.ts";

/** The metrics of syncs. */
export type SyncMetrics = Pick<
  ProxyMetrics,
  "syncQueued" | "syncFinished" | "syncSucceeded" | "syncFailed"
>;

interface FamilyProxyDependencies extends SyncLoopDependencies {
  readonly metrics: SyncMetrics;
  readonly backend: Backend;
  /** Called for each sync, in this order. */
  readonly serviceListeners: readonly ServiceSyncListener[];
  /** Records which object caused which change. */
  readonly recorder?: LoopListener<ServiceChange, ServicePlan>;
}

interface FamilyProxyOptions extends ProxyPipelineOptions {
  readonly runner: SyncRunnerOptions;
}

/** The log messages of syncs. */
export const TEXTS = {
  synced: "Synced proxy rules",
  failed: "Cannot sync proxy rules; the last applied state stays and the changes are tried again",
  quarantined: "Service port is in quarantine; it is tried again, all others work",
  released: "Service port is out of quarantine",
  item: "servicePort",
};

/** Keeps one family's data plane in step with its objects. */
export class FamilyProxy {
  readonly family: IpFamily;
  readonly backend: Backend;
  readonly loop: SyncLoop<ProxyPlan, PlanChanges, ServicePortKey, SyncReport>;
  readonly #dependencies: FamilyProxyDependencies;
  readonly #pipeline: ProxyPipeline;
  #isStarted = false;
  #isComplete = false;
  #node: NodeState;
  #addresses: readonly IpAddress[] = [];

  constructor(dependencies: FamilyProxyDependencies, options: FamilyProxyOptions) {
    this.family = options.family;
    this.backend = dependencies.backend;
    this.#dependencies = dependencies;
    this.#node = options.node;
    this.#pipeline = new ProxyPipeline(dependencies, options);
    const { recorder } = dependencies;
    this.loop = new SyncLoop(dependencies, {
      id: { controller: "service", family: options.family },
      dataPlane: dependencies.backend,
      source: this.#pipeline,
      listeners: [this, ...(recorder ? [recorder] : [])],
      texts: TEXTS,
      runner: options.runner,
    });
  }

  /** The pipeline with the plan and pending changes. */
  get pipeline(): ProxyPipeline {
    return this.#pipeline;
  }

  /**
   * Adopts the state of the machine. Syncs nothing before {@linkcode open} or {@linkcode
   * openEarly}.
   */
  async start(): Promise<void> {
    await this.loop.start();
    this.#isStarted = true;
    this.#noteQueued();
  }

  /** Called when all objects are known: other objects on the machine may be removed from now on. */
  open(): void {
    if (this.#isComplete) return;
    this.#isComplete = true;
    this.#pipeline.setPartial(false);
    this.#open();
  }

  /**
   * Starts syncs with the objects known so far, if the mode supports it; see {@linkcode
   * Backend.takesPartialPlans}.
   */
  openEarly(): void {
    if (!this.#isStarted || this.loop.isOpen || !this.backend.takesPartialPlans) return;
    this.#pipeline.setPartial(true);
    this.#open();
  }

  #open(): void {
    this.#noteQueued();
    this.loop.open();
  }

  /** Counts the syncs, and passes them on. */
  async on(event: ServiceSyncEvent): Promise<void> {
    const { metrics, serviceListeners } = this.#dependencies;
    switch (event.kind) {
      case "synced": {
        const { at, quarantined, report } = event;
        metrics.syncSucceeded(this.family, {
          at,
          quarantined: quarantined.length,
          programmingSeconds: this.#pipeline.takeTriggerTimes().map((trigger) =>
            Math.max(0, at - trigger) / 1000
          ),
          noLocalEndpoints: this.#pipeline.noLocalEndpoints(),
          ...(report.rules && { rules: report.rules }),
        });
        break;
      }
      case "failed":
        metrics.syncFailed(this.family);
        break;
      case "finished":
        metrics.syncFinished(this.family, event);
    }
    for (const listener of serviceListeners) {
      const done = listener.on(event);
      if (event.kind === "syncing") await done;
    }
  }

  /** Starts no further sync, waits for the running one. */
  async stop(): Promise<void> {
    await this.loop.stop();
  }

  onService(previous: Service | undefined, current: Service | undefined): void {
    if (!this.#pipeline.onService(previous, current)) return;
    this.#request({ kind: "Service", previous, current });
  }

  /** `previous` is the former state of the object, if it existed. */
  onEndpointSlice(
    slice: EndpointSlice,
    verb: "set" | "delete",
    { previous }: { readonly previous?: EndpointSlice | undefined } = {},
  ): void {
    if (!this.#pipeline.onEndpointSlice(slice, verb)) return;
    const change = verb === "set" ? { previous, current: slice } : { previous: slice };
    this.#request({ kind: "EndpointSlice", current: undefined, ...change });
  }

  /** `previous` is the former state of the object, if it existed. */
  onEndpoints(
    endpoints: Endpoints,
    verb: "set" | "delete",
    { previous }: { readonly previous?: Endpoints | undefined } = {},
  ): void {
    if (!this.#pipeline.onEndpoints(endpoints, verb)) return;
    const change = verb === "set" ? { previous, current: endpoints } : { previous: endpoints };
    this.#request({ kind: "Endpoints", current: undefined, ...change });
  }

  onNode(node: NodeState): void {
    const previous = this.#node;
    this.#node = node;
    if (this.#pipeline.setNode(node)) this.#request({ kind: "Node", previous, current: node });
  }

  /** Takes other settings of the plan: everything is planned again. */
  onSettings(settings: PlanSettings): void {
    this.#pipeline.setSettings(settings);
    this.#request({ kind: "configuration", previous: undefined, current: undefined });
  }

  onServiceCidrs(cidrs: readonly Cidr[]): void {
    if (!this.#pipeline.setServiceCidrs(cidrs)) return;
    this.#request({ kind: "ServiceCIDR", previous: undefined, current: undefined });
  }

  /** Takes the addresses of the machine, sorted; those that the backend put there are not the node's. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    const ofNode = addresses.filter(({ address, interfaceName }) =>
      ipFamilyOf(address) === this.family && !this.backend.ownsAddress(address, interfaceName)
    );
    const own = [...new Set(ofNode.map(({ address }) => address))];
    const previous = this.#addresses;
    this.#addresses = own;
    if (!this.#pipeline.setInterfaceAddresses(own)) return;
    this.#request({ kind: "addresses", previous, current: own });
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

  /** Takes the machine that has an address of this family; `undefined` = none that is known. */
  onHost(address: IpAddress, host: KnownHost | undefined): void {
    if (!this.#pipeline.setHost(address, host)) return;
    this.#request({ kind: "machines", previous: undefined, current: undefined });
  }

  #request(cause: ServiceChange): void {
    this.#dependencies.recorder?.seen(cause);
    if (this.loop.isOpen) this.#noteQueued();
    this.loop.request();
  }

  #noteQueued(): void {
    const { clock, metrics } = this.#dependencies;
    metrics.syncQueued(this.family, clock.wallNow());
  }
}
