/**
 * Settings of the machine that kube-relay would like to see: what was found, what was done.
 *
 * Every one is best effort. A proxy that ends because `/proc/sys` is read-only leaves a node without
 * Services (kubernetes/kubernetes#141943), so a refusal is told once and kept for `status`.
 *
 * @module
 */

/** A kernel setting that somebody needs. */
export interface HostSettingRequest {
  /** Name as `sysctl` has it, e.g. `net.ipv4.conf.all.route_localnet`. */
  readonly name: string;
  /** The value in the kernel's own spelling. */
  readonly value: string;
  /** A number that is larger already is left alone. @default {false} */
  readonly atLeast?: boolean;
  /** What it is needed for, as the end of the sentence "is needed to …". */
  readonly purpose: string;
}

/** What became of a request. */
export interface HostSettingOutcome {
  readonly name: string;
  readonly wanted: string;
  /** The value that was there; `undefined` = it could not be read. */
  readonly found?: string;
  /** `kept`: it was right already. `changed`: it was set. `refused`: it stays as it was found. */
  readonly state: "kept" | "changed" | "refused";
  readonly purpose: string;
  /** Why it was refused. */
  readonly reason?: string;
  /** The command that an admin would run, where it was refused. */
  readonly cure?: string;
}
