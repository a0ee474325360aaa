/**
 * What a sync has to say to the metrics. Owned by its caller.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import type { SyncReport } from "../proxy/backend.ts";

/** Figures of one successful sync. */
export interface SyncSuccess {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly quarantined: number;
  /** For each change of endpoints that was brought about: seconds since the control plane made it. */
  readonly programmingSeconds: readonly number[];
  /** ServicePorts with policy Local whose endpoints are all elsewhere. */
  readonly noLocalEndpoints: { readonly internal: number; readonly external: number };
  /** Rules of each table, by a mode that has such. */
  readonly rules?: SyncReport["rules"];
}

/** Told of syncs as they happen. */
export interface SyncMetrics {
  /** A sync was asked for, or the sync loop has begun; milliseconds since 1970. */
  syncQueued(family: IpFamily, at: number): void;
  /**
   * A sync has ended, well or not. `full` says whether everything was compared; left out when it
   * failed before that was known.
   */
  syncFinished(
    family: IpFamily,
    duration: { readonly seconds: number; readonly full?: boolean },
  ): void;
  syncSucceeded(family: IpFamily, success: SyncSuccess): void;
  syncFailed(family: IpFamily): void;
}
