import type { Cidr } from "../../lib/net/cidr.ts";
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { parseWaitingSockets, SOCKET_FILES } from "../../lib/os/kernel_sockets.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ComparisonScope, ServiceMode } from "../../lib/proxy/service_mode.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { IpRunner } from "../iproute/ip_runner.ts";
import type { AddressStore } from "./addresses/address_store.ts";
import {
  type AddressComparison,
  compareAddresses,
  type FoundAddresses,
} from "./addresses/compare.ts";
import { compareListeners } from "./compare_listeners.ts";
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
    repair: (plan) => addresses.repair(plan),
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

/** The edges. */
interface AddressComparisonDependencies {
  readonly runner: CommandRunner;
  readonly store: Pick<AddressStore, "load">;
}

/** {@linkcode ServiceMode.compare} and {@linkcode ServiceMode.repair} of userspace mode. */
export function addressComparison(
  { runner, store }: AddressComparisonDependencies,
  { family }: { readonly family: IpFamily },
): Pick<ServiceMode, "compare" | "repair"> {
  const ip = new IpRunner(runner, { family });
  const compare = async (
    plan: ProxyPlan,
    keys: ReadonlySet<ServicePortKey> | undefined,
  ): Promise<AddressComparison> => {
    const [record, found] = await Promise.all([store.load(), findAddresses(ip)]);
    return compareAddresses({ plan, record, found, keys });
  };
  return {
    async compare(plan, { keys } = {}): Promise<readonly DataPlaneDifference[]> {
      return (await compare(plan, keys)).differences;
    },
    async repair(plan) {
      const { lines } = await compare(plan, undefined);
      if (lines.length === 0) return {};
      const [problem] = (await ip.batch(lines, (line) => line)).values();
      // A sync may have written some of it, which is then refused.
      if (problem !== undefined && (await compare(plan, undefined)).lines.length > 0) {
        throw new Error(`Cannot repair addresses of lo: ${problem.message}`);
      }
      return { commands: 1, lines: lines.length };
    },
  };
}

/** Reads `lo` and the table of local routes. */
async function findAddresses(ip: IpRunner): Promise<FoundAddresses> {
  const [links, printed] = await Promise.all([ip.addresses("lo"), ip.routes("local")]);
  const addresses = new Map<IpAddress, readonly number[]>();
  for (const { address, prefixLength = 0 } of links ?? []) {
    addresses.set(address, [...addresses.get(address) ?? [], prefixLength]);
  }
  const routes = new Map<Cidr, string>();
  for (const { type, destination, device = "" } of printed) {
    if (type === "local" && destination !== undefined) routes.set(destination, device);
  }
  return { addresses, routes };
}
