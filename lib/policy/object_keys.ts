/**
 * The keys of objects that policies are about.
 *
 * @module
 */
import { objectKey } from "../api/kind.ts";
import type { NetworkPolicy } from "../api/kinds/network_policy.ts";
import type { Pod } from "../api/kinds/pod.ts";
import type { PodKey, PolicyKey } from "./policy_plan.ts";

/** The key of a pod. */
export function podKeyOf(pod: Pod): PodKey {
  return objectKey(pod) as PodKey;
}

/** The key of a policy. */
export function policyKeyOf(policy: NetworkPolicy): PolicyKey {
  return objectKey(policy) as PolicyKey;
}
