import type { ComparisonScope, ServiceMode } from "../../lib/proxy/service_mode.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import {
  addressComparison,
  type AddressComparisonDependencies,
} from "./addresses/address_comparison.ts";
import { compareListeners } from "./compare_listeners.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { parseWaitingSockets, SOCKET_FILES } from "../../lib/os/kernel_sockets.ts";
import type { SocketKey } from "./listeners.ts";

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

/** Returns the listening sockets of this network namespace; `undefined` if unavailable. */
export async function kernelSockets(
  runner: CommandRunner,
  family: IpFamily,
): Promise<ReadonlySet<SocketKey> | undefined> {
  const found = new Set<SocketKey>();
  for (const protocol of ["TCP", "UDP"] as const) {
    const { code, stdout } = await runner.run("cat", [SOCKET_FILES[family][protocol]]);
    if (code !== 0) return undefined;
    for (const socket of parseSockets(stdout, protocol)) found.add(socket);
  }
  return found;
}

/** The waiting sockets in a file of `/proc/net`. */
export function* parseSockets(text: string, protocol: "TCP" | "UDP"): Generator<SocketKey> {
  for (const { address, port } of parseWaitingSockets(text, protocol)) {
    yield `${formatHostPort(address, port)}/${protocol}` as SocketKey;
  }
}
