/** The settings of a plan of NetworkPolicies, as configuration and Node give them. Pure. */
import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { PolicyPlan } from "../../policy/policy_plan.ts";

/** Returns how denied packets of a family are treated, and which ranges are closed for unknown pods. */
export function policySettings(
  networkPolicy: KubeProxyConfiguration["networkPolicy"],
  { family, node }: { readonly family: IpFamily; readonly node: Node | undefined },
): Pick<PolicyPlan, "deny" | "closedRanges"> {
  const { deny, logGroup: group, logPerMinute: perMinute, start } = networkPolicy;
  return {
    deny: {
      action: deny === "drop" ? "drop" : "reject",
      ...(perMinute > 0 && { log: { perMinute, group } }),
    },
    closedRanges: start === "closed"
      ? podRangesOf(node).filter((range) => cidrFamilyOf(range) === family)
      : [],
  };
}

/** Returns the pod ranges of a Node, of both families. */
export function podRangesOf(node: Node | undefined): readonly Cidr[] {
  const { podCIDR, podCIDRs } = node?.spec ?? {};
  const texts = podCIDRs?.length ? podCIDRs : [podCIDR ?? ""];
  return texts.map(tryParseCidr).filter((range) => range !== undefined);
}
