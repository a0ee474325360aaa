import { objectKey } from "../../api/kind.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { POD } from "../../api/kinds/pod.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { PodKey, PolicyKey } from "../../policy/policy_plan.ts";
import { PolicyState } from "../../policy/policy_state.ts";

/** The policies of objects that were read; `undefined` = no pods and policies are among them. */
export function policyStateOf(...sets: readonly InformerSet[]): PolicyState | undefined {
  const state = new PolicyState();
  for (const informers of sets) {
    if (!informers.kinds.has(NETWORK_POLICY.kind)) continue;
    for (const namespace of informers.of(NAMESPACE).values()) {
      state.setNamespace(namespace.metadata.name, namespace);
    }
    for (const pod of informers.of(POD).values()) state.setPod(objectKey(pod) as PodKey, pod);
    for (const policy of informers.of(NETWORK_POLICY).values()) {
      state.setPolicy(objectKey(policy) as PolicyKey, policy);
    }
  }
  return state.pods.size > 0 || state.policies.size > 0 ? state : undefined;
}
