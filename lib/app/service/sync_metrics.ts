/**
 * What a sync has to say to the metrics.
 *
 * @module
 */
import type { SyncInstruments } from "../../metrics/sync_instruments.ts";

/** Told of syncs as they happen. */
export type SyncMetrics = Pick<
  SyncInstruments,
  "syncQueued" | "syncFinished" | "syncSucceeded" | "syncFailed"
>;
