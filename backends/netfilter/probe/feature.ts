/**
 * A thing that a kernel mode needs of the machine, and what was found of it.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";

/** One row of a mode's table of needs. */
export interface Feature {
  /** What it is called, e.g. `match conntrack`. */
  readonly feature: string;
  /** Whether the mode works at all without it. */
  readonly required: boolean;
  /** What does not work without it, as a sentence without a full stop. */
  readonly lost: string;
  /** What brings it: package, kernel module, kernel option. */
  readonly broughtBy: string;
}

/** What was found of a feature. */
interface Found {
  /** Why it is missing; absent: it is there. */
  readonly reason?: string | undefined;
  /** What was found, where it is there. @default {"works"} */
  readonly detail?: string | undefined;
  readonly family?: IpFamily | undefined;
  /** What brings it, where the reason says more than the feature does. @default {`broughtBy`} */
  readonly cure?: string | undefined;
}

/** The row of a report. */
export function probeResult(
  { feature, required, lost, broughtBy }: Feature,
  { reason, detail = "works", family, cure = broughtBy }: Found = {},
): ProbeResult {
  const row = { feature, required, ...(family !== undefined && { family }) };
  return reason === undefined
    ? { ...row, available: true, detail }
    : { ...row, available: false, detail: reason, cure, lost };
}

/** Said once for a mode, in place of the features that nobody could try. */
export const RIGHTS: Feature = {
  feature: "right to change packet filters",
  required: true,
  lost: "Nothing can be tested, and no rule can be written",
  broughtBy: "run as root or with CAP_NET_ADMIN and CAP_NET_RAW",
};

/** What {@linkcode RIGHTS} lacks. */
export const NOT_PERMITTED = "not permitted (needs root / CAP_NET_ADMIN)";
