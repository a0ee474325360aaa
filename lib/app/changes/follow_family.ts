/**
 * What of one family's proxy is written into the change log.
 *
 * @module
 */
import type { DriftFigures, SyncInstruments } from "../../metrics/sync_instruments.ts";
import type { Clock } from "../../os/clock.ts";
import type { ChangeLog } from "./change_log.ts";
import { ChangeRecorder, type ChangeRecorderOptions } from "./change_recorder.ts";

/** Who is told of one family. */
interface FamilyFollowers {
  readonly recorder: ChangeRecorder;
  /** Tells the metrics, too. */
  readonly onDrift: (figures: DriftFigures) => void;
}

/** Makes them. */
export function followFamily(
  { metrics, ...dependencies }: {
    readonly clock: Clock;
    readonly log: ChangeLog;
    readonly metrics: Pick<SyncInstruments, "driftFound">;
  },
  options: ChangeRecorderOptions,
): FamilyFollowers {
  return {
    recorder: new ChangeRecorder(dependencies, options),
    onDrift(figures) {
      metrics.driftFound(options.family, figures);
      dependencies.log.driftFound(options.family, figures);
    },
  };
}
