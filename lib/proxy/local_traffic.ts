/**
 * How a packet is known to come from a pod of this cluster.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";

/**
 * `none` means that nothing is known: all traffic is treated as from a pod, so nothing from outside
 * is masqueraded on its way to a cluster IP (upstream's "not implemented" detector).
 */
export type LocalTrafficDetector =
  | { readonly kind: "byCidr"; readonly cidr: Cidr }
  | { readonly kind: "byBridge"; readonly interfaceName: string }
  | { readonly kind: "byInterfacePrefix"; readonly prefix: string }
  | { readonly kind: "none" };
