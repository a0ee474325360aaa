/**
 * The status page of the running program.
 *
 * @module
 */
import type { Clock } from "../../../os/clock.ts";
import type { BackendMode } from "../../../proxy/backend.ts";
import type { HostChecks, HostFinding } from "../../../proxy/host_checks.ts";
import type { ChangesReport } from "../../changes/change_entry.ts";
import { byGravity } from "../../doctor/doctor_report.ts";
import { relayFindings } from "../../doctor/examine_relay.ts";
import type { Introspection } from "../../control/introspection.ts";
import { createStatusPage, type LocalPages } from "./status_page.ts";

/** What the page asks. */
interface RunningPageOptions {
  readonly introspection: Pick<Introspection, "status">;
  readonly changes: { recent(): ChangesReport };
  readonly mode: BackendMode;
  /** Ends a look at the machine with the program. */
  readonly signal: AbortSignal;
}

/** Makes it. Nothing is asked before somebody reads. */
export function createRunningPage(
  dependencies: { readonly clock: Clock; readonly hostChecks: Pick<HostChecks, "findings"> },
  { introspection, changes, mode, signal }: RunningPageOptions,
): LocalPages {
  const { hostChecks } = dependencies;
  return createStatusPage(dependencies, {
    status: (options) => introspection.status(options),
    changes: () => changes.recent(),
    async findings(): Promise<readonly HostFinding[]> {
      const status = await introspection.status({ brief: true });
      const { annotations } = status.node;
      const foreign = await hostChecks.findings({
        mode,
        signal,
        ...(annotations && { nodeAnnotations: annotations }),
      });
      return byGravity([...foreign, ...relayFindings(status)]);
    },
  });
}
