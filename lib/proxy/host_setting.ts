/**
 * Kernel settings that kube-relay recommends or requires: the value found, and the result.
 *
 * A failure never ends the process. A proxy that exits because `/proc/sys` is read-only leaves a
 * node without Services (kubernetes/kubernetes#141943), so a refusal is logged once and kept for
 * `status`.
 *
 * @module
 */

/** A recommended or required kernel setting. */
export interface HostSettingRequest {
  /** Name as in `sysctl`, e.g. `net.ipv4.conf.all.route_localnet`. */
  readonly name: string;
  /** The value in the kernel's own spelling. */
  readonly value: string;
  /** Keeps a larger number. @default {false} */
  readonly atLeast?: boolean;
  /** The purpose, as the end of the sentence "is needed to …". */
  readonly purpose: string;
}

/** The result of a request. */
export interface HostSettingOutcome {
  readonly name: string;
  readonly wanted: string;
  /** The previous value; `undefined` = it could not be read. */
  readonly found?: string;
  /** `kept`: it was correct already. `changed`: it was set. `refused`: it is unchanged. */
  readonly state: "kept" | "changed" | "refused";
  readonly purpose: string;
  /** The reason of the refusal. */
  readonly reason?: string;
  /** The command that sets it, if it was refused. */
  readonly cure?: string;
}
