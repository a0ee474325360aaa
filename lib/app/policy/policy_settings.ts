import type { KindSpec } from "../../api/kind.ts";
import { CLUSTER_NETWORK_POLICY } from "../../api/kinds/cluster_network_policy.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { POD } from "../../api/kinds/pod.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { ListOptions } from "../../kube/informer_set.ts";
import type { Logger } from "../../log/logger.ts";
import { type Cidr, cidrContains, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { PolicyPlanSettings } from "../../policy/policy_planner.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import type { HostChecks } from "../../proxy/host_checks.ts";
import { missingText, supportOf } from "../../proxy/service_mode.ts";
import type { NeededAccess } from "../run/controller_source.ts";
import { POLICY_TOOLS, type PolicyTool } from "./policy_backend.ts";

/** The settings of a plan of NetworkPolicies, as configuration and Node give them. Pure. */

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

const NEEDED_KINDS: readonly KindSpec[] = [POD, NAMESPACE, NETWORK_POLICY];

/** The kinds that policies are planned from, besides Nodes. */
export const POLICY_KINDS: readonly KindSpec[] = [...NEEDED_KINDS, CLUSTER_NETWORK_POLICY];

/** Returns how one of these kinds is listed. The custom resource is often not installed. */
export function policySelection(spec: KindSpec): ListOptions {
  return spec === CLUSTER_NETWORK_POLICY as KindSpec
    ? { optionalOn: [403, 404], isOftenAbsent: true }
    : {};
}

function readAccess(kinds: readonly KindSpec[]): NeededAccess["accesses"] {
  return kinds.flatMap(({ group, plural }) =>
    (["list", "watch"] as const).map((verb) => ({ verb, group, plural }))
  );
}

/**
 * The permissions without which nothing is enforced; `deploy/kubernetes/network-policy-rbac.yaml` grants
 * them.
 */
export const POLICY_ACCESS: NeededAccess = {
  name: "access for NetworkPolicies",
  accesses: readAccess(NEEDED_KINDS),
  clusterRole: "kube-relay-network-policy",
  cure: "create this ClusterRole and bind it to the identity of the kubeconfig, or name a " +
    "kubeconfig that has the rights with --policy-kubeconfig",
  effect: "no NetworkPolicy is enforced",
  texts: {
    granted: "The API server allows reading pods, namespaces and NetworkPolicies",
    unanswerable: "Cannot ask for the rights to read NetworkPolicies; trying to read them",
    unanswered: "Cannot ask for the rights to read NetworkPolicies; will ask again",
    refused:
      "NetworkPolicies are NOT enforced: the API server does not let kube-relay read pods, " +
      "namespaces or NetworkPolicies; Services work, and the request is repeated",
    unusableKubeconfig:
      "NetworkPolicies are NOT enforced: the kubeconfig for them cannot be used; Services work, " +
      "and it is read again",
  },
};

/** The permissions for ClusterNetworkPolicies, and for the nodes that they may name. */
export const CLUSTER_POLICY_ACCESS: NeededAccess = {
  ...POLICY_ACCESS,
  accesses: readAccess([CLUSTER_NETWORK_POLICY, NODE]),
};

/**
 * Chooses a tool for the value of `networkPolicy.mode`; `refusal` says why it cannot be used here. A tool
 * that was asked for by name is never replaced: it is returned with its refusal. So is the best one if
 * none works, as a tool may be installed later. The tool of `serviceMode`, which runs, was found to work.
 */
export async function findPolicyTool(
  hostChecks: Pick<HostChecks, "probeMode">,
  request: string,
  serviceMode?: BackendMode,
  signal?: AbortSignal,
): Promise<{ readonly tool: PolicyTool; readonly refusal?: string }> {
  let best: { readonly tool: PolicyTool; readonly refusal: string } | undefined;
  for (const tool of POLICY_TOOLS) {
    if (request !== "auto" && request !== tool) continue;
    if (serviceMode === tool) return { tool };
    const { families, missing } = supportOf(await hostChecks.probeMode(tool, signal && { signal }));
    if (families.length > 0) return { tool };
    best ??= { tool, refusal: missingText(missing) };
  }
  if (best) return best;
  throw new TypeError(`No data plane of NetworkPolicy has the name '${request}'`);
}

/**
 * As {@linkcode findPolicyTool}, with a line of the log. `undefined` = no tool works, none was asked for
 * by name, and the mode of Services relays: what it relays is judged without rules.
 */
export async function choosePolicyTool(
  { logger, hostChecks }: {
    readonly logger: Logger;
    readonly hostChecks: Pick<HostChecks, "probeMode">;
  },
  request: string,
  serviceMode?: BackendMode,
  signal?: AbortSignal,
): Promise<PolicyTool | undefined> {
  const { tool, refusal } = await findPolicyTool(hostChecks, request, serviceMode, signal);
  const isRelayed = serviceMode !== undefined && MODE_TRAITS[serviceMode].forwardsItself;
  if (refusal === undefined) {
    logger.info("Chose how NetworkPolicies are enforced", { tool });
    return tool;
  }
  if (isRelayed && request === "auto") {
    logger.warn(
      "NetworkPolicies are enforced for relayed connections only; direct pod-to-pod traffic is " +
        "not covered: the host lacks what rules need",
      { reason: refusal },
    );
    return undefined;
  }
  logger.error(
    isRelayed
      ? "NetworkPolicies are enforced for relayed connections only: the host lacks what rules " +
        "for direct pod-to-pod traffic need, and it is tried again"
      : "NetworkPolicies are NOT enforced: the host lacks what they need; Services work, and it is " +
        "tried again",
    { tool, reason: refusal },
  );
  return tool;
}
