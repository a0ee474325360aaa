import type { KindSpec } from "../../api/kind.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { POD } from "../../api/kinds/pod.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { NeededAccess } from "../run/controller_source.ts";

/** The kinds that policies are planned from. */
export const POLICY_KINDS: readonly KindSpec[] = [POD, NAMESPACE, NETWORK_POLICY];

/** The permissions to read them; `deploy/kubernetes/network-policy-rbac.yaml` grants them. */
export const POLICY_ACCESS: NeededAccess = {
  name: "access for NetworkPolicies",
  accesses: POLICY_KINDS.flatMap(({ group, plural }) =>
    (["list", "watch"] as const).map((verb) => ({ verb, group, plural }))
  ),
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

/** The kubeconfig of the identity that reads policies; empty = the pod's service account. */
export function policyKubeconfigOf(
  { networkPolicy, clientConnection }: Pick<
    KubeProxyConfiguration,
    "networkPolicy" | "clientConnection"
  >,
): string {
  return networkPolicy.kubeconfig || clientConnection.kubeconfig;
}
