import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import type { ProbeResult } from "./service_mode.ts";

/** The features of a machine that a mode needs. */
export interface ModeSupport {
  /** IP families that have all they need; empty = the mode cannot run. */
  readonly families: readonly IpFamily[];
  /** Missing requirements, of both families. */
  readonly missing: readonly ProbeResult[];
  /** Missing features that the mode can work without. */
  readonly reduced: readonly ProbeResult[];
}

/**
 * A mode can run if the machine has all shared requirements and all those of at least one family. A
 * host without IPv6 can run every mode; upstream, too, omits the family then.
 */
export function supportOf(results: readonly ProbeResult[]): ModeSupport {
  const absent = results.filter(({ available }) => !available);
  const missing = absent.filter(({ required }) => required);
  const shared = missing.some(({ family }) => family === undefined);
  return {
    families: shared
      ? []
      : IP_FAMILIES.filter((each) => !missing.some((row) => row.family === each)),
    missing,
    reduced: absent.filter(({ required }) => !required),
  };
}

/** The missing features and their cures, as one line for an error or the log. */
export function missingText(missing: readonly ProbeResult[]): string {
  return missing.map(({ feature, family, detail, cure }) => {
    const name = family === undefined ? feature : `${feature} (${family})`;
    return `${name}: ${detail}${cure === undefined ? "" : ` (${cure})`}`;
  }).join("; ");
}
