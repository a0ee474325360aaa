/**
 * What a look at the kernel found.
 *
 * @module
 */

/** What was found different and put right. */
export interface DriftFigures {
  readonly kind: "chain" | "rule";
  readonly found: number;
  readonly repaired: number;
}
