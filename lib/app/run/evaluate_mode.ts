/**
 * Whether a mode can be had: what this build has, and what the host has for it.
 *
 * @module
 */
import type { BackendMode } from "../../proxy/backend.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import { missingText, type ModeSupport, supportOf } from "../../proxy/mode_support.ts";
import type { Dependencies } from "../dependencies.ts";

/** What was found of a mode. */
export interface ModeVerdict {
  readonly mode: BackendMode;
  /** Why it cannot be had; absent where it can. */
  readonly refusal?: string;
  /** Everything that was tried. */
  readonly results: readonly ProbeResult[];
  readonly support: ModeSupport;
}

/** How it is found out. */
interface EvaluateOptions {
  /** Tries also what a mode needs that this build lacks. @default {false} */
  readonly always?: boolean;
  readonly signal?: AbortSignal;
}

/** Weighs one mode. Rejects only when the caller gave up. */
export async function evaluateMode(
  { backends, hostChecks }: Pick<Dependencies, "backends" | "hostChecks">,
  mode: BackendMode,
  { always = false, signal }: EvaluateOptions = {},
): Promise<ModeVerdict> {
  const absent = backends[mode] === undefined;
  const results = absent && !always
    ? []
    : await hostChecks.probeMode(mode, signal ? { signal } : {});
  const support = supportOf(results);
  const refusal = absent
    ? `this release has ${Object.keys(backends).join(", ")} only`
    : support.families.length === 0
    ? missingText(support.missing)
    : undefined;
  return { mode, results, support, ...(refusal !== undefined && { refusal }) };
}
