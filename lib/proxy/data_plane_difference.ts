import type { ServicePortKey } from "./service_port_name.ts";

/** An object of the data plane that differs from the plan. */
export interface DataPlaneDifference {
  /**
   * The kind of object, in the mode's own words: `chain`, `rule`, `map element`, `ip set entry`,
   * `virtual server`, `address` …
   */
  readonly object: string;
  /**
   * Its name, as the administrator would search for it, e.g. `nat KUBE-SVC-…` or
   * `10.96.0.1:443/TCP`.
   */
  readonly name: string;
  readonly kind: "missing" | "extra" | "altered" | "reordered";
  /** The ServicePort that it serves; absent if all ServicePorts share it. */
  readonly key?: ServicePortKey;
  /** The wanted text in the tool's own language; absent if extra. */
  readonly wanted?: string;
  /** The found text; absent if missing. */
  readonly found?: string;
  /** The remedy, if a repair cannot correct it. */
  readonly cure?: string;
}
