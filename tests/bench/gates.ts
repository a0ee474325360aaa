/**
 * What the benchmark demands. Only counts and ratios of the same run: a slow machine fails none.
 *
 * @module
 */

/** One demand and what was measured. */
export interface Gate {
  readonly name: string;
  readonly value: number;
  readonly atMost: number;
  readonly digits?: number;
  /** Why it fails nothing when it is missed. */
  readonly onlyAim?: string;
}

/** Whether it is met. What could not be measured is not. */
export function isMet({ value, atMost }: Gate): boolean {
  return value <= atMost;
}

/** Whether the benchmark fails by it. */
export function isFailure(gate: Gate): boolean {
  return gate.onlyAim === undefined && !isMet(gate);
}

/** Cells of a table: name, value, limit, outcome. */
export function gateRow(gate: Gate): [string, string, string, string] {
  const { name, value, atMost, digits = 2, onlyAim } = gate;
  const outcome = isMet(gate) ? "ok" : onlyAim ?? "MISSED";
  return [name, value.toFixed(digits), atMost.toFixed(digits), outcome];
}
