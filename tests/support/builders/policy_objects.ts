import type { ClusterNetworkPolicySpec } from "../../../lib/api/kinds/cluster_network_policy.ts";
import type { NetworkPolicySpec } from "../../../lib/api/kinds/network_policy.ts";
import type { Pod } from "../../../lib/api/kinds/pod.ts";
import type { PodKey, PolicyKey } from "../../../lib/policy/policy_plan.ts";
import type { PolicyState } from "../../../lib/policy/policy_state.ts";

/** The node of local pods. */
export const POLICY_NODE = "n1";

/** The options of plans of IPv4. */
export const IPV4_PLAN = {
  family: "IPv4",
  nodeName: POLICY_NODE,
  deny: { action: "reject" },
  closedRanges: [],
  podLinks: [],
} as const;

/** The key of a pod. */
export function podKey(key: string): PodKey {
  return key as PodKey;
}

/** The key of a policy. */
export function policyKey(key: string): PolicyKey {
  return key as PolicyKey;
}

/** The properties of a pod in a test. */
export interface TestPod {
  readonly address?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly nodeName?: string;
  readonly created?: string;
  readonly phase?: string;
  readonly hostNetwork?: boolean;
  /** TCP ports by name. */
  readonly ports?: Readonly<Record<string, number>>;
}

/** A local pod. */
export function testPod(
  key: string,
  { address, labels, nodeName = POLICY_NODE, created, phase, hostNetwork, ports = {} }: TestPod =
    {},
): Pod {
  const [namespace = "", name = ""] = key.split("/");
  const containerPorts = Object.entries(ports).map(([name, containerPort]) => ({
    name,
    containerPort,
  }));
  return {
    metadata: {
      name,
      namespace,
      ...(labels && { labels }),
      ...(created && { creationTimestamp: created }),
    },
    spec: {
      nodeName,
      ...(hostNetwork && { hostNetwork }),
      containers: [{ ports: containerPorts }],
    },
    status: {
      ...(phase && { phase }),
      ...(address && { podIPs: address.split(",").map((ip) => ({ ip })) }),
    },
  };
}

/** Adds or replaces a pod. */
export function setPod(state: PolicyState, key: string, pod: TestPod = {}): void {
  state.setPod(podKey(key), testPod(key, pod));
}

/** Adds or replaces a policy. */
export function setPolicy(state: PolicyState, key: string, spec: NetworkPolicySpec): void {
  const [namespace = "", name = ""] = key.split("/");
  state.setPolicy(policyKey(key), { metadata: { name, namespace }, spec });
}

/** Adds or replaces a policy of the administrator for all pods, with priority 10. */
export function setClusterPolicy(
  state: PolicyState,
  name: string,
  spec: Partial<ClusterNetworkPolicySpec>,
): void {
  state.setClusterPolicy(policyKey(name), {
    metadata: { name },
    spec: { tier: "Admin", priority: 10, subject: { namespaces: {} }, ...spec },
  });
}
