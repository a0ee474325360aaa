/**
 * Durations in Go's notation, as in kube-proxy's flags and configuration.
 *
 * @module
 */

/** Milliseconds of each unit; Unicode has two characters for the micro sign. */
const UNIT_MS: ReadonlyMap<string, number> = new Map([
  ["ns", 1e-6],
  ["us", 1e-3],
  ["\u00b5s", 1e-3],
  ["\u03bcs", 1e-3],
  ["ms", 1],
  ["s", 1_000],
  ["m", 60_000],
  ["h", 3_600_000],
]);

const PART = /(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)/y;

/** Go's durations are 64-bit nanoseconds. */
const LONGEST_MS = 2 ** 63 / 1e6;

/**
 * Parses a duration such as `1m30s`, `250ms`, `-1.5h` or `0` to milliseconds. Returns `undefined` for
 * anything else, including a bare number other than 0, as Go does.
 */
export function tryParseDuration(text: string): number | undefined {
  const sign = text.startsWith("-") ? -1 : 1;
  const body = text.replace(/^[+-]/, "");
  if (body === "0") return 0;
  if (body === "") return undefined;
  let total = 0;
  PART.lastIndex = 0;
  while (PART.lastIndex < body.length) {
    const match = PART.exec(body);
    if (match === null) return undefined;
    total += Number(match[1]) * (UNIT_MS.get(match[2]!) ?? NaN);
  }
  // Sums of decimal fractions are off by less than a nanosecond, which Go cannot express either.
  const rounded = Math.round(total * 1e6) / 1e6;
  return rounded < LONGEST_MS ? (sign * rounded) || 0 : undefined;
}

/** Writes milliseconds as Go does: `1m30s`, `1h0m0s`, `250ms`, `0s`. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds === 0) return "0s";
  const sign = milliseconds < 0 ? "-" : "";
  const rest = Math.abs(milliseconds);
  if (rest < 1e-3) return `${sign}${decimal(rest * 1e6)}ns`;
  if (rest < 1) return `${sign}${decimal(rest * 1e3)}\u00b5s`;
  if (rest < 1_000) return `${sign}${decimal(rest)}ms`;
  const hours = Math.floor(rest / 3_600_000);
  const minutes = Math.floor(rest / 60_000) % 60;
  const seconds = decimal((rest % 60_000) / 1_000);
  if (hours > 0) return `${sign}${hours}h${minutes}m${seconds}s`;
  return minutes > 0 ? `${sign}${minutes}m${seconds}s` : `${sign}${seconds}s`;
}

function decimal(value: number): string {
  return String(Number(value.toFixed(9)));
}
