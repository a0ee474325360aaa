/**
 * How a virtual server chooses among its endpoints: what the node says, and what a Service says for
 * itself. Pure.
 *
 * @module
 */

/** The schedulers that ip_vs has had since Linux 4.18, by the names that it knows them by. */
export const SCHEDULERS = [
  "rr",
  "lc",
  "dh",
  "sh",
  "sed",
  "nq",
  "wrr",
  "wlc",
  "lblc",
  "lblcr",
  "mh",
] as const;

/** One of {@linkcode SCHEDULERS}. */
export type Scheduler = typeof SCHEDULERS[number];

/** kube-proxy's default. */
export const DEFAULT_SCHEDULER: Scheduler = "rr";
