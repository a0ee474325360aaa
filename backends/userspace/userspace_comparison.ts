/**
 * Compares addresses, routes and listening sockets with a plan, from any process. Addresses and
 * routes are repaired; only the serving process itself can open its sockets.
 *
 * @module
 */
import type { ComparisonScope, ServiceMode } from "../../lib/proxy/service_mode.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import {
  addressComparison,
  type AddressComparisonDependencies,
} from "./addresses/address_comparison.ts";
import { compareListeners } from "./compare_listeners.ts";
import { kernelSockets } from "./kernel_sockets.ts";

/** {@linkcode ServiceMode.compare} and {@linkcode ServiceMode.repair} of userspace mode. */
export function userspaceComparison(
  dependencies: AddressComparisonDependencies,
  { family }: { readonly family: IpFamily },
): Pick<ServiceMode, "compare" | "repair"> {
  const addresses = addressComparison(dependencies, { family });
  const listeners = async (
    plan: ProxyPlan,
    scope: ComparisonScope,
  ): Promise<readonly DataPlaneDifference[]> => {
    if (scope.serving === undefined) return [];
    const sockets = await kernelSockets(dependencies.runner, family);
    return compareListeners({ plan, scope, sockets });
  };
  return {
    async compare(plan, scope = {}) {
      return [...await addresses.compare(plan, scope), ...await listeners(plan, scope)];
    },
    async repair(plan, scope = {}) {
      const { found, left, operations } = await addresses.repair(plan, scope);
      const open = await listeners(plan, scope);
      return { found: [...found, ...open], left: [...left, ...open], operations };
    },
  };
}
