/**
 * What the controllers of a run say about changes, for the change log. It costs constant time: a
 * first list has tens of thousands of objects.
 *
 * @module
 */
import type { EndpointSlice } from "../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../api/kinds/endpoints.ts";
import type { Namespace } from "../api/kinds/namespace.ts";
import type { NetworkPolicy } from "../api/kinds/network_policy.ts";
import type { Node } from "../api/kinds/node.ts";
import type { Pod } from "../api/kinds/pod.ts";
import type { Service } from "../api/kinds/service.ts";
import type { LoopId } from "../engine/loop_id.ts";
import type { SyncListener } from "../engine/sync_event.ts";
import type { DriftFigures } from "../metrics/proxy_metrics.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { NodeState } from "../proxy/node_state.ts";
import type { EndpointHealthChange } from "../proxy/service_mode.ts";
import type { ServicePlan } from "../proxy/service_plan.ts";
import type { ServicePortKey } from "../proxy/service_port_name.ts";

/** An object before and after; one of them may be absent. */
export interface ObjectChange<Kind, State> {
  readonly kind: Kind;
  readonly previous: State | undefined;
  readonly current: State | undefined;
}

/** A cause of a sync of Services. */
export type ServiceChange =
  | ObjectChange<"Service", Service>
  | ObjectChange<"EndpointSlice", EndpointSlice>
  | ObjectChange<"Endpoints", Endpoints>
  | { readonly kind: "Node"; readonly previous: NodeState; readonly current: NodeState }
  | {
    readonly kind: "addresses";
    readonly previous: readonly IpAddress[];
    readonly current: readonly IpAddress[];
  }
  | ObjectChange<"ServiceCIDR" | "configuration" | "machines", undefined>;

/** A cause of a sync of NetworkPolicies. */
export type PolicyChange =
  | ObjectChange<"Pod", Pod>
  | ObjectChange<"Namespace", Namespace>
  | ObjectChange<"NetworkPolicy", NetworkPolicy>
  | ObjectChange<"Node", Node>
  | ObjectChange<"configuration", undefined>;

/** A cause of a sync of any other controller. */
export interface NamedChange {
  /** A kind of the API, `addresses` or `configuration`. */
  readonly kind: string;
  /** Empty for kinds without a name. */
  readonly name: string;
  /** What happened; may be empty. */
  readonly words: readonly string[];
  readonly previous?: unknown;
  readonly current?: unknown;
}

/** An item that a sync changed, e.g. an address or a pod of this node. */
export interface NamedItem {
  readonly name: string;
  readonly words: readonly string[];
}

/** Follows the changes of one loop from the object to the data plane. */
export interface LoopListener<Change, Item> extends SyncListener {
  /** An object changed. */
  seen(change: Change): void;
  /** A sync has begun with all changes seen so far. */
  drained(): void;
  /** The plan of an item has changed. */
  planned(previous: Item | undefined, next: Item | undefined): void;
}

/** One search for stale UDP flows. */
export interface FlowCleaning {
  /** Number of removed flows by ServicePort. */
  readonly removed: ReadonlyMap<ServicePortKey, number>;
  readonly tookMs: number;
  /** The reason of the failure. The deletion will be retried. */
  readonly error?: string;
}

/** Notes what changes in a run. `waitMs`: the longest wait of a change for its sync. */
export interface ChangeListener {
  followServices(loop: LoopId, waitMs: number): LoopListener<ServiceChange, ServicePlan>;
  followPolicies(loop: LoopId, waitMs: number): LoopListener<PolicyChange, NamedItem>;
  /** Follows any other loop. */
  follow(loop: LoopId, waitMs: number): LoopListener<NamedChange, NamedItem>;
  /** Objects of kube-relay were found missing or changed. */
  driftFound(loop: LoopId, figures: DriftFigures): void;
  /** UDP flows were removed that a sync made stale. */
  flowsCleaned(family: IpFamily, cleaning: FlowCleaning): void;
  /** Endpoints became unhealthy, were ejected, or returned. */
  healthChanged(family: IpFamily, changes: readonly EndpointHealthChange[]): void;
  /** Fields of the configuration changed; their values may be secret. */
  configurationChanged(fields: readonly string[]): void;
}
