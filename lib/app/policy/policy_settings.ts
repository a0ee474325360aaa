/** The settings of a plan of NetworkPolicies, as configuration and Node give them. Pure. */
import type { Node } from "../../api/kinds/node.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { type Cidr, cidrContains, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { PolicyPlanSettings } from "../../policy/policy_planner.ts";

/** Names of interfaces as network plugins choose them: other characters mean something in rules. */
const LINK_NAME = /^[\w.:-]{1,15}$/;

/**
 * Returns how denied packets of a family are treated, which ranges are closed for unknown pods, and which
 * interfaces are shared by pods: those with an address in a pod range of the Node.
 */
export function policySettings(
  networkPolicy: KubeProxyConfiguration["networkPolicy"],
  { family, node, addresses }: {
    readonly family: IpFamily;
    readonly node: Node | undefined;
    /** Those of the machine. */
    readonly addresses: readonly InterfaceAddress[];
  },
): PolicyPlanSettings {
  const { deny, logGroup: group, logPerMinute: perMinute, start } = networkPolicy;
  const ranges = podRangesOf(node);
  const links = addresses.flatMap(({ interfaceName, address }) =>
    LINK_NAME.test(interfaceName) && ranges.some((range) => cidrContains(range, address))
      ? [interfaceName]
      : []
  );
  return {
    podLinks: [...new Set(links)].sort(),
    deny: {
      action: deny === "drop" ? "drop" : "reject",
      ...(perMinute > 0 && { log: { perMinute, group } }),
    },
    closedRanges: start === "closed"
      ? ranges.filter((range) => cidrFamilyOf(range) === family)
      : [],
  };
}

/** Returns the pod ranges of a Node, of both families. */
export function podRangesOf(node: Node | undefined): readonly Cidr[] {
  const { podCIDR, podCIDRs } = node?.spec ?? {};
  const texts = podCIDRs?.length ? podCIDRs : [podCIDR ?? ""];
  return texts.map(tryParseCidr).filter((range) => range !== undefined);
}
