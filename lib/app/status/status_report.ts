import type { IpFamily } from "../../net/ip_address.ts";
import type { HostSettingOutcome } from "../../proxy/host_setting.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { ServedAddress } from "../../proxy/service_mode.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";

/** An endpoint of a ServicePort. */
export interface StatusEndpoint {
  readonly address: string;
  readonly state: "ready" | "not ready" | "serving, terminating" | "terminating";
  readonly local: boolean;
}

/** One ServicePort. */
export interface StatusService {
  /** `namespace/name:port`. */
  readonly name: string;
  readonly protocol: string;
  readonly addresses: readonly ServedAddress[];
  readonly endpoints: readonly StatusEndpoint[];
  /** Open connections or flows. */
  readonly connections?: number;
  /** With `--service-counters`. */
  readonly traffic?: TrafficFigures;
  /** Why it, or one of its addresses, is in quarantine. */
  readonly quarantined?: string;
  /** When a ServicePort that the kernel refused is tried again, RFC 3339. */
  readonly retryAt?: string;
}

/** One IP family. */
export interface StatusFamily {
  readonly family: IpFamily;
  readonly mode: BackendMode;
  /** How Service addresses reach the data plane. */
  readonly summary: string;
  readonly lastSync?: {
    /** RFC 3339. */
    readonly at: string;
    readonly durationMs: number;
    readonly full: boolean;
    /** ServicePorts that were compared. */
    readonly services: number;
    readonly operations: Readonly<Record<string, number>>;
  };
  /** Whether changes wait for a sync. */
  readonly pending: boolean;
  /** Failed syncs since the last successful one. */
  readonly failures: number;
  readonly lastError?: string;
  /** Empty in a brief status. */
  readonly services: readonly StatusService[];
  readonly quarantined: readonly Quarantined[];
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
  readonly families: readonly StatusFamily[];
}
