/**
 * One way in which a machine holds something else than a plan wants.
 *
 * @module
 */
import type { ServicePortKey } from "./service_port_name.ts";

/** An object of the data plane that is not as it should be. */
export interface DataPlaneDifference {
  /** What kind of thing it is, in the mode's own words: `chain`, `rule`, `map element`, `ip set entry`, `virtual server`, `address` … */
  readonly object: string;
  /** Which one: what a person would look for, e.g. `nat KUBE-SVC-…` or `10.96.0.1:443/TCP`. */
  readonly name: string;
  readonly kind: "missing" | "extra" | "altered" | "reordered";
  /** The ServicePort that it is for; absent for what all share. */
  readonly key?: ServicePortKey;
  /** In the tool's own language; absent where it is extra. */
  readonly wanted?: string;
  /** The same of what is there; absent where it is missing. */
  readonly found?: string;
  /** Who puts it right, where a repair can't. */
  readonly cure?: string;
}

/** What a repair found and did. */
export interface DataPlaneRepair {
  /** What differed before. */
  readonly found: readonly DataPlaneDifference[];
  /** What still differs. */
  readonly left: readonly DataPlaneDifference[];
  /** Operations on the data plane, by name (`transactions`, `lines`, `commands` …). */
  readonly operations: Readonly<Record<string, number>>;
}
