import type { ChangesReport } from "../changes/change_entry.ts";
import type { StatusReport } from "../status/status_report.ts";
import { OUTCOME_PART } from "./dump_schema.ts";
import { DumpError, readDumpFile } from "./read_dump.ts";

/** A status of then. */
interface DumpedStatus {
  readonly report: StatusReport;
  /** When that was, in milliseconds since 1970. */
  readonly now: number;
}

/** Reads the status of a dump. Throws a {@linkcode DumpError}, also for a dump that has none. */
export async function readDumpedStatus(path: string): Promise<DumpedStatus> {
  const { status, writtenAt } = await readDumpFile(path, { part: OUTCOME_PART });
  if (status === undefined) throw nothingTold(path, "a status");
  return { report: status, now: Date.parse(writtenAt) };
}

/** Reads the last changes of a dump. Throws a {@linkcode DumpError}, also for a dump that has none. */
export async function readDumpedChanges(path: string): Promise<ChangesReport> {
  const { changes } = await readDumpFile(path, { part: OUTCOME_PART });
  if (changes === undefined) throw nothingTold(path, "changes");
  return changes;
}

function nothingTold(path: string, what: string): DumpError {
  return new DumpError(
    `Cannot tell ${what} from dump '${path}': no kube-relay was running when it was made; ` +
      "'kube-relay render --from FILE' prints what would be applied",
  );
}
