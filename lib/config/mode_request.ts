import { BACKEND_MODES, type BackendMode } from "../proxy/backend.ts";
import { nearestName } from "../api/nearest_name.ts";

/**
 * The requested mode: a mode; `auto`, the best mode that the host supports; or `default`, which
 * means upstream's iptables, and `auto` if the host does not support that.
 */
export type ModeRequest = BackendMode | "auto" | "default";

/** The request, or why it is invalid. */
type ModeRequestResult =
  | { readonly mode: ModeRequest }
  | { readonly problem: string };

/** Parses the name of a mode. Modes are case-sensitive, as upstream. */
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
