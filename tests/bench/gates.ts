/**
 * The limits of the benchmarks. Only counts and ratios of the same run, so that a slow machine
 * fails none.
 *
 * @module
 */

/** A limit, and the measured value. */
export interface Gate {
  readonly name: string;
  readonly value: number;
  readonly atMost: number;
  readonly digits?: number;
  /**
   * The excess over `atMost` that is no failure, as a share of it. Ratios of times and memory
   * differ between processors with the size of their caches and the time of garbage collection. A
   * count has 0.
   */
  readonly slack?: number;
  /** The reason why exceeding the limit is no failure. */
  readonly onlyAim?: string;
}

const SLACK = 0.25;

/** Whether it is met. What could not be measured is not. */
export function isMet({ value, atMost }: Gate): boolean {
  return value <= atMost;
}

/** Whether the benchmark fails by it. What could not be measured fails, too. */
export function isFailure({ value, atMost, slack = SLACK, onlyAim }: Gate): boolean {
  return onlyAim === undefined && !(value <= atMost * (1 + slack));
}

/** Cells of a table: name, value, limit, outcome. */
export function gateRow(gate: Gate): [string, string, string, string] {
  const { name, value, atMost, digits = 2, onlyAim } = gate;
  const missed = isFailure(gate) ? "MISSED" : "above the aim, within what machines differ by";
  const outcome = isMet(gate) ? "ok" : onlyAim ?? missed;
  return [name, value.toFixed(digits), atMost.toFixed(digits), outcome];
}
