/**
 * The times of a reflector.
 *
 * @module
 */
import type { BackoffOptions } from "./backoff.ts";

/** Times that a reflector keeps. */
export interface ReflectorTiming {
  readonly backoff?: BackoffOptions;
  /** Shortest watch asked for; up to twice as long. @default {300} */
  readonly minWatchSeconds?: number;
  /** How long after its time a watch may end before it counts as dead. @default {30000} */
  readonly watchGraceMs?: number;
  /** A streaming list that is silent for so long is given up. @default {30000} */
  readonly stallMs?: number;
  /** How long until an unavailable resource is asked for again. @default {300000} */
  readonly unavailableRetryMs?: number;
}
