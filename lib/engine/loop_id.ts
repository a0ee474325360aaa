import type { IpFamily } from "../net/ip_address.ts";

/**
 * Every controller that a run may have. Only this list names them. `bgp` and
 * `pod-network` are loops for both families: they are parts of the controller `routing`, but wait for
 * nothing of it.
 */
export const CONTROLLER_NAMES = [
  "service",
  "network-policy",
  "routing",
  "bgp",
  "pod-network",
] as const;

/** The name of a controller. */
export type ControllerName = typeof CONTROLLER_NAMES[number];

/** Identifies a loop: a controller has one for each IP family. */
export interface LoopId {
  readonly controller: ControllerName;
  readonly family: IpFamily;
}

/** Returns the name of a loop. Loops of Services are named by family only, as in kube-proxy. */
export function loopText({ controller, family }: LoopId, separator = " "): string {
  return controller === "service" ? family : `${controller}${separator}${family}`;
}

/** Returns the controller as a field; empty for Services, whose output does not name it. */
export function otherController(
  { controller }: Pick<LoopId, "controller">,
): { readonly controller?: ControllerName } {
  return controller === "service" ? {} : { controller };
}
