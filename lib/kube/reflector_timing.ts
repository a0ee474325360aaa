import type { BackoffOptions } from "../os/backoff.ts";

/** Time limits of a reflector. */
export interface ReflectorTiming {
  readonly backoff?: BackoffOptions;
  /** Shortest requested watch; the longest is twice as long. @default {300} */
  readonly minWatchSeconds?: number;
  /** The time after its end at which a watch counts as broken. @default {30000} */
  readonly watchGraceMs?: number;
  /**
   * The version of a list that is older than this may expire; then there is a new list at once. One
   * that expires sooner is a failure. @default {10000}
   */
  readonly freshListMs?: number;
  /** A streaming list without a new object for this time is given up. @default {30000} */
  readonly stallMs?: number;
  /**
   * An optional resource that is refused is requested again by back-off for this time: a server that
   * has just started refuses what it will allow in seconds. @default {180000}
   */
  readonly refusalPatienceMs?: number;
  /** Time until a resource that stayed unavailable is requested again. @default {300000} */
  readonly unavailableRetryMs?: number;
}
