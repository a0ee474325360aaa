/**
 * The data planes of NetworkPolicy that this build has, by the tool that they write their rules with.
 *
 * @module
 */
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import { createIptablesPolicyDataPlane } from "./iptables/data_plane.ts";
import { createNftablesPolicyDataPlane } from "./nftables/data_plane.ts";
import type { PolicyDataPlane, PolicyDataPlaneOptions } from "./policy_data_plane.ts";

/** Creates the data plane of each tool. */
export const POLICY_BACKENDS: Readonly<
  Partial<
    Record<
      PolicyDataPlane["tool"],
      (edges: RuleBackendDependencies, options: PolicyDataPlaneOptions) => PolicyDataPlane
    >
  >
> = {
  nftables: createNftablesPolicyDataPlane,
  iptables: createIptablesPolicyDataPlane,
};
