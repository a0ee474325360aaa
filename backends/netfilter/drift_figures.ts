/** Differences that a check of the kernel found and repaired. */
export interface DriftFigures {
  readonly kind: "chain" | "rule" | "set" | "virtual_server" | "address";
  readonly found: number;
  readonly repaired: number;
}
