import type { ProcessInfo } from "../dependencies.ts";

/** NO_COLOR counts when it is there and not empty (no-color.org). */
export function usesColor(
  { env, stdoutIsTerminal }: Pick<ProcessInfo, "env" | "stdoutIsTerminal">,
): boolean {
  return stdoutIsTerminal && !env("NO_COLOR") && env("TERM") !== "dumb";
}
