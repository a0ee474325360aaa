import type { Endpoint } from "./endpoint.ts";

/**
 * Forward to one of the endpoints (never empty), reject (ICMP port unreachable, RST), or drop
 * silently.
 */
export type Verdict =
  | { readonly kind: "forward"; readonly endpoints: readonly Endpoint[] }
  | { readonly kind: "reject" }
  | { readonly kind: "drop" };

/** Makes a missing case of a union a compile error. */
export function assertNever(value: never): never {
  throw new TypeError(`Unexpected value '${JSON.stringify(value)}'`);
}
