/**
 * The data planes of NetworkPolicy that this build has, by the tool that they write their rules with.
 *
 * @module
 */
import type { RulePlaneEdges } from "../netfilter/rule_plane.ts";
import { IptablesPolicyPlane } from "./iptables/data_plane.ts";
import { NftablesPolicyPlane } from "./nftables/data_plane.ts";
import type { PolicyPlane, PolicyPlaneOptions } from "./policy_plane.ts";

/** Creates the data plane of each tool. */
export const POLICY_BACKENDS: Readonly<
  Record<
    PolicyPlane["tool"],
    (edges: RulePlaneEdges, options: PolicyPlaneOptions) => PolicyPlane
  >
> = {
  nftables: (edges, options) => new NftablesPolicyPlane(edges, options),
  iptables: (edges, options) => new IptablesPolicyPlane(edges, options),
};
