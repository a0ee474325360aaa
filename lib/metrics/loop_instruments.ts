/**
 * Metrics of the loops of all controllers. Loops of Services also have kube-proxy's metrics.
 *
 * @module
 */
import type { LoopId } from "../controller/loop_id.ts";
import type { Instruments } from "./instruments.ts";

/** Counts the syncs of every loop. */
export interface LoopInstruments {
  /** `at`: milliseconds since 1970. */
  synced(loop: LoopId, figures: { readonly at: number; readonly quarantined: number }): void;
  failed(loop: LoopId): void;
  /** Called after each sync, successful or not. */
  finished(loop: LoopId, figures: { readonly seconds: number }): void;
}

/** Creates the instruments of all loops. */
export function loopInstruments(its: Instruments): LoopInstruments {
  return {
    synced(loop, { at, quarantined }) {
      its.controllerLastSync.set(labelsOf(loop), at / 1000);
      its.controllerQuarantined.set(labelsOf(loop), quarantined);
    },
    failed: (loop) => its.controllerSyncFailures.inc(labelsOf(loop)),
    finished: (loop, { seconds }) => its.controllerSyncDuration.observe(labelsOf(loop), seconds),
  };
}

function labelsOf({ controller, family }: LoopId): Record<string, string> {
  return { controller, "ip_family": family };
}
