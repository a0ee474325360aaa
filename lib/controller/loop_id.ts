/**
 * Which loop something is about.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";

/** Every controller that a run may have; a new one is named here and nowhere else. */
export const CONTROLLER_NAMES = ["service", "network-policy", "routing"] as const;

/** The name of a controller. */
export type ControllerName = typeof CONTROLLER_NAMES[number];

/** One loop: a controller has one for each IP family. */
export interface LoopId {
  readonly controller: ControllerName;
  readonly family: IpFamily;
}

/** Text that names a loop. Those of Services go by their family alone, as in kube-proxy. */
export function loopText({ controller, family }: LoopId, separator = " "): string {
  return controller === "service" ? family : `${controller}${separator}${family}`;
}

/** The controller, where it is not that of Services: what is written of those does not name it. */
export function otherController(
  { controller }: Pick<LoopId, "controller">,
): { readonly controller?: ControllerName } {
  return controller === "service" ? {} : { controller };
}
