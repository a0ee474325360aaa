import type { StatusNode } from "../../app/run/start_up.ts";
import type { StatusFamily } from "../../app/service/service_status.ts";
import type { ControllerStatus, StatusSource } from "../../engine/controller.ts";
import type { TrafficFigures } from "../../proxy/service_traffic.ts";
import type { HostSettingOutcome } from "../../proxy/data_plane.ts";

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
  /** Of all Services since the start; absent without `--service-counters`. */
  readonly traffic?: TrafficFigures;
  /** The status of the controller of Services. */
  readonly families: readonly StatusFamily[];
  /** The other controllers; absent where there are none. */
  readonly controllers?: readonly ControllerStatus[];
}
