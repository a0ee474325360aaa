/**
 * From the word that names a mode to a mode that this build has.
 *
 * @module
 */
import type { BackendMode } from "../proxy/backend.ts";
import { nearestName } from "./nearest_name.ts";

/** Every mode that is known, in this build or elsewhere. */
export const KNOWN_MODES: readonly BackendMode[] = ["iptables", "ipvs", "nftables", "userspace"];

/** A mode, or why there is none. */
export type ModeResult = { readonly mode: BackendMode } | { readonly problem: string };

/**
 * The mode that a word means. An empty one is the first that this build has; a mode that it does not
 * have is a problem, never silently another one: upstream's fallbacks left nodes in modes that
 * nobody had asked for.
 */
export function resolveMode(text: string, available: readonly BackendMode[]): ModeResult {
  const mode = KNOWN_MODES.find((known) => known === (text || available[0]));
  if (mode !== undefined && available.includes(mode)) return { mode };
  const right = available.join(", ");
  if (mode !== undefined) {
    return { problem: `Cannot run in mode '${mode}': this release has ${right} only` };
  }
  const nearest = nearestName(text, available);
  const hint = nearest === undefined ? "" : `; did you mean '${nearest}'?`;
  return {
    problem: `Cannot run in mode '${text}': no such mode, this release has ${right}${hint}`,
  };
}
