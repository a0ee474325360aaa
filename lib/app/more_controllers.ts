import type { ControllerDefinition } from "./controllers.ts";
import { NETWORK_POLICY_CONTROLLER } from "./policy/policy_controller.ts";
import { ROUTING_CONTROLLER } from "./routing/routing_controller.ts";

/**
 * The controllers of this build besides that of Services, which every run has, in the order in which
 * they start after it.
 */
export const MORE_CONTROLLERS: readonly ControllerDefinition[] = [
  NETWORK_POLICY_CONTROLLER,
  ROUTING_CONTROLLER,
];
