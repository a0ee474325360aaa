/**
 * The state of a step of a case.
 *
 * @module
 */
import { objectKey } from "../../lib/api/kind.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { PodKey, PolicyKey } from "../../lib/policy/policy_plan.ts";
import type { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "./case_addresses.ts";
import { caseObjects, type PolicyStep } from "./policy_case.ts";

/** Brings a state from the step before to this one. */
export function applyStep(state: PolicyState, step: PolicyStep, family: IpFamily): void {
  const { namespaces, pods, policies } = caseObjects(step, caseAddresses(family));
  for (const key of [...state.policies.keys()]) {
    if (!policies.some((policy) => objectKey(policy) === key)) state.setPolicy(key, undefined);
  }
  for (const policy of policies) state.setPolicy(objectKey(policy) as PolicyKey, policy);
  for (const pod of pods) state.setPod(objectKey(pod) as PodKey, pod);
  for (const namespace of namespaces) state.setNamespace(namespace.metadata.name, namespace);
}
