/**
 * From what was tried on a machine to whether a mode can run there.
 *
 * @module
 */
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import type { ProbeResult } from "./service_mode.ts";

/** What a machine has for a mode. */
export interface ModeSupport {
  /** IP families that have all they need; empty: the mode cannot run. */
  readonly families: readonly IpFamily[];
  /** Required things that are missing, of both families. */
  readonly missing: readonly ProbeResult[];
  /** Things that the mode can do without, and that are missing. */
  readonly reduced: readonly ProbeResult[];
}

/**
 * A mode can run when all that both families need is there, and all that one of them needs: a host
 * without IPv6 is no reason against a mode (upstream too leaves out the family then).
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

/** What is missing, and what brings it, as one line for an error or the log. */
export function missingText(missing: readonly ProbeResult[]): string {
  return missing.map(({ feature, family, detail, cure }) => {
    const name = family === undefined ? feature : `${feature} (${family})`;
    return `${name}: ${detail}${cure === undefined ? "" : ` (${cure})`}`;
  }).join("; ");
}
