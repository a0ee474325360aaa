/**
 * Compares the addresses and routes of this machine with those that the running process has put there,
 * and mends what differs. For another process: nothing is bound, and the record is only read.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type {
  DataPlaneDifference,
  DataPlaneRepair,
} from "../../../lib/proxy/data_plane_difference.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServiceMode } from "../../../lib/proxy/service_mode.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { AddressStore } from "./address_store.ts";
import { type AddressComparison, compareAddresses } from "./compare.ts";
import { findAddresses } from "../../iproute/found_addresses.ts";

/** The edges. */
export interface AddressComparisonDependencies {
  readonly runner: CommandRunner;
  readonly store: Pick<AddressStore, "load">;
}

/** {@linkcode ServiceMode.compare} and {@linkcode ServiceMode.repair} of userspace mode. */
export function addressComparison(
  dependencies: AddressComparisonDependencies,
  { family }: { readonly family: IpFamily },
): Pick<ServiceMode, "compare" | "repair"> {
  const compare = async (
    plan: ProxyPlan,
    keys: ReadonlySet<ServicePortKey> | undefined,
  ): Promise<AddressComparison> => {
    const { runner, store } = dependencies;
    const [record, found] = await Promise.all([store.load(), findAddresses(runner, family)]);
    return compareAddresses({ plan, record, found, keys });
  };
  return {
    async compare(plan, { keys } = {}): Promise<readonly DataPlaneDifference[]> {
      return (await compare(plan, keys)).differences;
    },
    async repair(plan, { keys } = {}): Promise<DataPlaneRepair> {
      const { differences, lines } = await compare(plan, keys);
      if (lines.length === 0) return { found: differences, left: differences, operations: {} };
      const problem = await write(dependencies.runner, { family, lines });
      const { differences: left } = await compare(plan, keys);
      // What somebody else has mended meanwhile is refused, and well.
      if (problem !== undefined && left.length > 0) throw new Error(problem);
      return { found: differences, left, operations: { commands: 1, lines: lines.length } };
    },
  };
}

/** Does all that can be done; resolves to what could not. */
async function write(
  runner: CommandRunner,
  { family, lines }: { readonly family: IpFamily; readonly lines: readonly string[] },
): Promise<string | undefined> {
  const args = [family === "IPv6" ? "-6" : "-4", "-force", "-batch", "-"];
  const { code, stderr } = await runner.run("ip", args, {
    stdin: lines.map((line) => `${line}\n`).join(""),
  });
  if (code === 0) return undefined;
  const reason = stderr.trim().split("\n")[0] || `exit code ${code}`;
  return `Cannot repair addresses of lo: 'ip ${args.join(" ")}': ${reason}`;
}
