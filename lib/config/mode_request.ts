/**
 * From the word that names a mode to what was asked for.
 *
 * @module
 */
import { BACKEND_MODES, type BackendMode } from "../proxy/backend.ts";
import { nearestName } from "./nearest_name.ts";

/**
 * What was asked for: a mode; `auto`, the best one that the host can do; or `default`, nothing at
 * all, which means upstream's iptables, and `auto` on a host that can't do that.
 */
export type ModeRequest = BackendMode | "auto" | "default";

/** What was asked for, or why that is nothing that exists. */
type ModeRequestResult =
  | { readonly mode: ModeRequest }
  | { readonly problem: string };

/** Reads the word. Modes are case-sensitive, as upstream. */
export function parseModeRequest(text: string): ModeRequestResult {
  if (text === "") return { mode: "default" };
  const words: readonly ModeRequest[] = [...BACKEND_MODES, "auto"];
  const mode = words.find((known) => known === text);
  if (mode !== undefined) return { mode };
  const nearest = nearestName(text, words);
  const hint = nearest === undefined ? "" : `; did you mean '${nearest}'?`;
  return {
    problem: `Cannot run in mode '${text}': there is no such mode, only ${words.join(", ")}${hint}`,
  };
}
