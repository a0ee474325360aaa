/**
 * What the status page shows: values of the running program, as they are at one moment.
 *
 * @module
 */
import type { HostFinding } from "../../../proxy/host_checks.ts";
import type { SyncTime } from "../../changes/change_entry.ts";
import type { StatusReport } from "../status_report.ts";

/** A line of the list of last changes. */
export interface PageChange {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** What changed, e.g. `Service default/web: ready endpoints 2 to 3`. */
  readonly cause: string;
  /** What became of it, e.g. `IPv4: 6 lines in 4 ms`. */
  readonly effect: string;
  /** Whether somebody should look at it. */
  readonly attention?: "slow" | "failed" | "drift" | "quarantine";
}

/** What other software and this machine do that an admin should know of. */
export interface PageFindings {
  /** When it was looked for, in milliseconds since 1970; absent while that goes on. */
  readonly at?: number;
  readonly findings: readonly HostFinding[];
}

/** Everything on the page. */
export interface PageModel {
  readonly report: StatusReport;
  /** What the reader asked for, as `status --filter` takes it. */
  readonly filter: string;
  /** The newest last. */
  readonly syncs: readonly SyncTime[];
  /** The newest last. */
  readonly changes: readonly PageChange[];
  readonly doctor: PageFindings;
}

/** A part of the page that is replaced as a whole when it has changed. */
export interface PageSection {
  /** The element that it stands in. */
  readonly id: string;
  readonly html: string;
}
