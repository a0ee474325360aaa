/**
 * A program in a network namespace that writes the rules of one tool and leaves them there: a pod that
 * policies select or not, with other policies of the cluster or none.
 *
 * @module
 */
import type { NetworkPolicySpec } from "../../../lib/api/kinds/network_policy.ts";
import type { PodKey, PolicyKey } from "../../../lib/policy/policy_plan.ts";
import type { PolicyState } from "../../../lib/policy/policy_state.ts";
import { BENCH_PORT } from "../agent_protocol.ts";
import { BENCH_NODE, benchState } from "./bench_cluster.ts";
import { hintVariant, PolicyRules } from "./policy_rules.ts";
import type { PolicyTool } from "./rules_figures.ts";

/** The request to the program. */
export interface LoadTask {
  readonly tool: PolicyTool;
  /** The pod whose first packets are measured. */
  readonly address: string;
  /** The block that its last policy allows. */
  readonly allowed: string;
  readonly policiesOfPod: number;
  /** Of each policy of the pod. */
  readonly rules: number;
  readonly policiesElsewhere: number;
}

const NAMESPACE = "measured";
const PODS = 10_000;

if (import.meta.main) {
  const task: LoadTask = JSON.parse(Deno.args[0] ?? "");
  if (task.tool !== "nftables") await hintVariant(task.tool);
  const state = benchState({ pods: PODS, policies: task.policiesElsewhere });
  addMeasuredPod(state, task);
  await new PolicyRules(task.tool, state).load();
  Deno.exit(0);
}

function addMeasuredPod(
  state: PolicyState,
  { address, allowed, policiesOfPod, rules }: LoadTask,
): void {
  state.setPod(`${NAMESPACE}/pod` as PodKey, {
    metadata: { name: "pod", namespace: NAMESPACE, labels: { app: "measured" } },
    spec: { nodeName: BENCH_NODE, containers: [] },
    status: { phase: "Running", podIPs: [{ ip: address }] },
  });
  for (let nth = 0; nth < policiesOfPod; nth++) {
    const name = `policy-${nth}`;
    const isLast = nth === policiesOfPod - 1;
    const blocks = Array.from({ length: rules }, (_, rule) => `192.${nth}.${rule}.0/24`);
    if (isLast) blocks[rules - 1] = allowed;
    const spec: NetworkPolicySpec = {
      podSelector: { matchLabels: { app: "measured" } },
      policyTypes: ["Ingress"],
      ingress: blocks.map((cidr) => ({
        from: [{ ipBlock: { cidr } }],
        ports: [{ protocol: "TCP", port: BENCH_PORT }],
      })),
    };
    state.setPolicy(`${NAMESPACE}/${name}` as PolicyKey, {
      metadata: { name, namespace: NAMESPACE },
      spec,
    });
  }
}
