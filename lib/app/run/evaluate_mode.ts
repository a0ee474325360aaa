/**
 * Evaluates whether a mode is available: in this build, and on this host.
 *
 * @module
 */
import type { BackendMode } from "../../proxy/backend.ts";
import type { HostCheckOptions } from "../../proxy/host_checks.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import { missingText, type ModeSupport, supportOf } from "../../proxy/mode_support.ts";
import type { Dependencies } from "../dependencies.ts";

/** The evaluation of a mode. */
export interface ModeVerdict {
  readonly mode: BackendMode;
  /** The reason why the mode is not available; absent if it is. */
  readonly refusal?: string;
  /** The results of all probes. */
  readonly results: readonly ProbeResult[];
  readonly support: ModeSupport;
}

interface EvaluateOptions extends HostCheckOptions {
  /** Also probes the needs of a mode that this build lacks. @default {false} */
  readonly always?: boolean;
}

/** Evaluates one mode. Rejects only if the caller aborts. */
export async function evaluateMode(
  { backends, hostChecks }: Pick<Dependencies, "backends" | "hostChecks">,
  mode: BackendMode,
  { always = false, ...options }: EvaluateOptions = {},
): Promise<ModeVerdict> {
  const absent = backends[mode] === undefined;
  const results = absent && !always ? [] : await hostChecks.probeMode(mode, options);
  const support = supportOf(results);
  const refusal = absent
    ? `this release has ${Object.keys(backends).join(", ")} only`
    : support.families.length === 0
    ? missingText(support.missing)
    : undefined;
  return { mode, results, support, ...(refusal !== undefined && { refusal }) };
}
