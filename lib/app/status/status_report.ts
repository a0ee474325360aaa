import type { IpFamily } from "../../net/ip_address.ts";
import type { HostSettingOutcome } from "../../proxy/host_setting.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { ServedAddress } from "../../proxy/service_mode.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";

/** An endpoint of a ServicePort, for a person to read. */
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
  /** Connections or flows open now. */
  readonly connections?: number;
  /** What went through it, with `--service-counters`. */
  readonly traffic?: TrafficFigures;
  /** Why it, or an address of it, is in quarantine. */
  readonly quarantined?: string;
  /** What the kernel refused, and from when on a sync tries it again, RFC 3339. */
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
    /** ServicePorts that were looked at. */
    readonly services: number;
    readonly operations: Readonly<Record<string, number>>;
  };
  /** Whether changes wait for a sync. */
  readonly pending: boolean;
  /** Failed syncs since the last good one. */
  readonly failures: number;
  readonly lastError?: string;
  /** Empty in a brief status. */
  readonly services: readonly StatusService[];
  readonly quarantined: readonly Quarantined[];
}

/** The own node. */
export interface StatusNode {
  readonly name: string;
  readonly zone?: string;
  /** Those of its annotations that say how other software was started there. */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A place that objects come from. */
export interface StatusSource {
  readonly name: string;
  /** E.g. `watching`, `3 objects`. */
  readonly state: string;
  /** What is wrong with it, one line each. */
  readonly problems: readonly string[];
}

/** Everything. */
export interface StatusReport {
  readonly version: string;
  readonly pid: number;
  /** RFC 3339. */
  readonly startedAt: string;
  /** `waiting for objects`, `serving`, `stopping`. */
  readonly phase: string;
  /** Longest time for which the event loop did not turn, since the start. */
  readonly largestEventLoopDelayMs: number;
  readonly node: StatusNode;
  readonly sources: readonly StatusSource[];
  /** Settings of the kernel that were requested, and what became of them. */
  readonly hostSettings: readonly HostSettingOutcome[];
  readonly families: readonly StatusFamily[];
}
