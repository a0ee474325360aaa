import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";

/** A feature that a mode uses. */
export interface Feature {
  /** The name, e.g. `match conntrack`. */
  readonly feature: string;
  /** Whether the mode needs it to work at all. */
  readonly required: boolean;
  /** The consequence of its absence, as a sentence without a full stop. */
  readonly lost: string;
  /** The remedy: a package, kernel module or kernel option. */
  readonly broughtBy: string;
}

interface Found {
  /** The reason why it is missing; absent if it is available. */
  readonly reason?: string | undefined;
  /** The detail of an available feature. @default {"works"} */
  readonly detail?: string | undefined;
  readonly family?: IpFamily | undefined;
  /** A more specific remedy than that of the feature. @default {`broughtBy`} */
  readonly cure?: string | undefined;
  /** Whether the tool did not answer in time. */
  readonly isLate?: boolean | undefined;
}

/** The row of a report. */
export function probeResult(
  { feature, required, lost, broughtBy }: Feature,
  { reason, detail = "works", family, cure = broughtBy, isLate }: Found = {},
): ProbeResult {
  const row = { feature, required, ...(family !== undefined && { family }) };
  return reason === undefined
    ? { ...row, available: true, detail }
    : { ...row, available: false, detail: reason, cure, lost, ...(isLate && { isLate }) };
}

/** Reported once for a mode, instead of the features that could not be tried. */
export const RIGHTS: Feature = {
  feature: "right to change packet filters",
  required: true,
  lost: "Nothing can be tested, and no rule can be written",
  broughtBy: "run as root or with CAP_NET_ADMIN and CAP_NET_RAW",
};

/** The reason for missing {@linkcode RIGHTS}. */
export const NOT_PERMITTED = "not permitted (needs root / CAP_NET_ADMIN)";
