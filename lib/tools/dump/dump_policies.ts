/**
 * The section of a dump for the NetworkPolicy controller; their objects are elsewhere in the dump.
 */
import type { NetworkPolicyController } from "../../app/policy/policy_controller.ts";
import type { NetworkPolicyConfiguration } from "../../config/network_policy.ts";
import {
  type DumpSection,
  fields,
  flag,
  ipFamily,
  list,
  number,
  optional,
  plainText,
} from "./dump_value.ts";

/** The section; the path of the kubeconfig is not in it. */
export const DUMPED_POLICIES = fields({
  /** Absent if none was chosen yet. */
  tool: optional(plainText),
  families: list(ipFamily),
  settings: fields({
    mode: plainText,
    start: plainText,
    deny: plainText,
    logPerMinute: number,
    logGroup: number,
    cutConnections: flag,
    minSyncPeriod: number,
  }),
});

/** Returns the section. */
export function dumpedPolicies(
  { tool, families }: Pick<NetworkPolicyController, "tool" | "families">,
  settings: NetworkPolicyConfiguration,
): DumpSection {
  const value = {
    ...(tool !== undefined && { tool }),
    families: families.map(({ family }) => family),
    settings,
  };
  return { schema: DUMPED_POLICIES, value };
}
