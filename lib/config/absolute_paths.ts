import { FLAG_ROWS, type FlagValues } from "./flags.ts";

/** Placeholders of flags with paths. */
const PATHS: readonly (string | undefined)[] = ["FILE", "PATH", "DIR"];

/** Returns the flags with absolute paths, for a program that runs in another folder. */
export function absolutePaths(flags: FlagValues, folder: string): FlagValues {
  const absolute = (path: unknown) =>
    typeof path !== "string" || path === "" || path.startsWith("/") ? path : `${folder}/${path}`;
  const changed: Record<string, unknown> = { ...flags };
  for (const { name, value } of FLAG_ROWS) {
    const given = flags[name];
    if (given === undefined || !PATHS.includes(value)) continue;
    changed[name] = Array.isArray(given) ? given.map(absolute) : absolute(given);
  }
  return changed as FlagValues;
}
