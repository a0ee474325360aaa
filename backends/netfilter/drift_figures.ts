/**
 * What a look at the kernel found.
 *
 * @module
 */

/** What was found different and put right. */
export interface DriftFigures {
  readonly kind: "chain" | "rule" | "set" | "virtual_server" | "address";
  readonly found: number;
  readonly repaired: number;
}
