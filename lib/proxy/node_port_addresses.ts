/**
 * Which addresses of the node accept node ports.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";

/** Node ports on every address of the node, or only on those inside one of the ranges. */
export type NodePortAddresses =
  | { readonly kind: "all" }
  | { readonly kind: "cidrs"; readonly cidrs: readonly Cidr[] };
