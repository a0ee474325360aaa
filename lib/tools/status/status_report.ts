import type { ControllerStatus, LoopStatus } from "../../controller/controller.ts";
import type { HostSettingOutcome } from "../../proxy/host_setting.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { EndpointHealth, ServedAddress } from "../../proxy/service_mode.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";

/** An endpoint of a ServicePort. */
export interface StatusEndpoint {
  readonly address: string;
  readonly state: "ready" | "not ready" | "serving, terminating" | "terminating";
  readonly local: boolean;
  /** Of a Service whose endpoints are checked or ejected, as far as connections may use them. */
  readonly health?: Pick<EndpointHealth, "state" | "reason"> & {
    /** RFC 3339. */
    readonly since: string;
  };
}

/** One ServicePort. */
export interface StatusService {
  /** `namespace/name:port`. */
  readonly name: string;
  readonly protocol: string;
  readonly addresses: readonly ServedAddress[];
  readonly endpoints: readonly StatusEndpoint[];
  /** Settings by annotations that the mode applies. */
  readonly settings?: readonly string[];
  /** Open connections or flows. */
  readonly connections?: number;
  /** With `--service-counters`. */
  readonly traffic?: TrafficFigures;
  /** The reason why it, or one of its addresses, is in quarantine. */
  readonly quarantined?: string;
  /** The time of the next attempt for a ServicePort that the kernel refused, RFC 3339. */
  readonly retryAt?: string;
}

/** One IP family of Services. */
export interface StatusFamily extends LoopStatus {
  readonly mode: BackendMode;
  readonly lastSync?: NonNullable<LoopStatus["lastSync"]> & {
    /** ServicePorts that were compared. */
    readonly services: number;
  };
  /** Empty in a brief status. */
  readonly services: readonly StatusService[];
  readonly quarantined: readonly Quarantined[];
}

/** The status of the controller of Services. */
export interface ServiceStatus extends ControllerStatus {
  readonly families: readonly StatusFamily[];
}

/** This node. */
export interface StatusNode {
  readonly name: string;
  readonly zone?: string;
  /** Annotations that say how other software on the node was started. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A source of objects. */
export interface StatusSource {
  readonly name: string;
  /** E.g. `watching`, `3 objects`. */
  readonly state: string;
  /** One line each. */
  readonly problems: readonly string[];
}

/** The answer to `kube-relay status`, and its JSON. */
export interface StatusReport {
  readonly version: string;
  readonly pid: number;
  /** RFC 3339. */
  readonly startedAt: string;
  /** `waiting for objects`, `serving`, `stopping`. */
  readonly phase: string;
  /** Longest delay of the event loop since the start. */
  readonly largestEventLoopDelayMs: number;
  readonly node: StatusNode;
  readonly sources: readonly StatusSource[];
  /** Requested kernel settings and their outcome. */
  readonly hostSettings: readonly HostSettingOutcome[];
  /** The status of the controller of Services. */
  readonly families: readonly StatusFamily[];
  /** The other controllers; absent where there are none. */
  readonly controllers?: readonly ControllerStatus[];
}
