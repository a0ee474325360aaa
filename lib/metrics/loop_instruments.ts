/**
 * Metrics of the loops of all controllers. Loops of Services also have kube-proxy's metrics.
 *
 * @module
 */
import type { LoopId } from "../controller/loop_id.ts";
import type { Instruments } from "./instruments.ts";
import type { METRICS } from "./metric_table.ts";

/** Unexpected differences of a data plane, and repairs. */
export interface DriftFigures {
  readonly kind: typeof METRICS.driftFound.labels.kind[number];
  readonly found: number;
  readonly repaired: number;
}

/** Counts the syncs of every loop. */
export interface LoopInstruments {
  /** `at`: milliseconds since 1970. */
  synced(loop: LoopId, figures: { readonly at: number; readonly quarantined: number }): void;
  failed(loop: LoopId): void;
  /** Called after each sync, successful or not. */
  finished(loop: LoopId, figures: { readonly seconds: number }): void;
  /** The data plane was compared with what kube-relay had written. */
  driftFound(loop: LoopId, figures: DriftFigures): void;
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
    driftFound(loop, { kind, found, repaired }) {
      const labels = { ...labelsOf(loop), kind };
      its.driftFound.inc(labels, found);
      its.driftRepaired.inc(labels, repaired);
    },
  };
}

function labelsOf({ controller, family }: LoopId): Record<string, string> {
  return { controller, "ip_family": family };
}
