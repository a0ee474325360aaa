// deno-lint-ignore-file no-console -- its output is what it is for
/**
 * A program in a network namespace: the rules of one tool, with few policies and with
 * many. Prints the cost of each step as JSON.
 *
 * @module
 */
import { walkPolicies as walkIptables } from "../../support/walk/iptables_policies.ts";
import { renderedPolicyTable, walkConnection } from "../../support/walk/nft_policies.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import type { PolicyState } from "../../../lib/policy/policy_state.ts";
import {
  benchLocalPod,
  benchPod,
  benchPodKey,
  benchPodObject,
  benchPolicies,
  benchState,
  type ClusterSize,
  setBenchPolicy,
} from "./bench_cluster.ts";
import { hintVariant, PolicyRules } from "./policy_rules.ts";
import {
  EVENT_KINDS,
  type EventKind,
  type OwnFigures,
  type PolicyTool,
  type RulesTask,
  type StepCost,
} from "./rules_figures.ts";

/** Numbers of policies that are compared. */
const FEW = 10;
const MANY = 1_000;
const PODS = 10_000;
/** 10,000 rules, all for pods of this node. */
const LARGEST: ClusterSize = { pods: PODS, policies: 2_000, allLocal: true };
/** Pods of the namespace of the first policy. */
const REMOTE_PODS = [1_008, 2_008, 3_008, 4_008, 5_008, 6_008];

if (import.meta.main) {
  const task: RulesTask = JSON.parse(Deno.args[0] ?? "");
  console.log(JSON.stringify(await measureOwn(task)));
  Deno.exit(0);
}

async function measureOwn(
  { tool, loads, events }: RulesTask,
): Promise<OwnFigures> {
  if (tool !== "nftables") await hintVariant(tool);
  const sizes = [FEW, MANY].map((policies) => ({
    policies,
    loads: [] as StepCost[],
    events: Object.fromEntries(EVENT_KINDS.map((kind) => [kind, []])) as unknown as Record<
      EventKind,
      StepCost[]
    >,
    visitedRules: NaN,
  }));
  // Turns between the sizes: other work of the machine hits all of them alike.
  for (let load = 0; load < loads; load++) {
    for (const size of sizes) {
      await using rules = new PolicyRules(
        tool,
        benchState({ pods: PODS, policies: size.policies }),
      );
      size.loads.push(await rules.load());
      size.visitedRules = visitedRules(tool, rules.plan);
      for (let event = 0; event < events; event++) {
        for (const kind of EVENT_KINDS) {
          size.events[kind].push(await rules.change(eventOf(kind, event)));
        }
      }
    }
  }
  return { tool, sizes, largest: await measureLargest(tool, { loads, events }) };
}

async function measureLargest(
  tool: PolicyTool,
  { loads, events }: { readonly loads: number; readonly events: number },
): Promise<OwnFigures["largest"]> {
  const figures = { loads: [] as StepCost[], changes: [] as StepCost[] };
  const policies = benchPolicies(LARGEST);
  for (let load = 0; load < loads; load++) {
    await using rules = new PolicyRules(tool, benchState(LARGEST));
    figures.loads.push(await rules.load());
    for (let event = 0; event < events; event++) {
      const policy = policies[event * 97 % policies.length]!;
      const [first, ...rest] = policy.rules;
      const changed = { ...policy, rules: [{ ...first!, port: 7_000 + event }, ...rest] };
      figures.changes.push(await rules.change((state) => setBenchPolicy(state, changed)));
    }
  }
  return figures;
}

/** The pods are members of the same sets whatever the number of policies. */
function eventOf(kind: EventKind, nth: number): (state: PolicyState) => void {
  const isLocal = kind.startsWith("local");
  const pod = isLocal ? benchLocalPod(nth % FEW) : benchPod(REMOTE_PODS[nth % REMOTE_PODS.length]!);
  return (state) => {
    state.setPod(benchPodKey(pod), kind.endsWith("goes") ? undefined : benchPodObject(pod));
  };
}

/** The mean over the pods that the policies select. */
function visitedRules(tool: PolicyTool, plan: PolicyPlan): number {
  let [visited, counted] = [0, 0];
  const onRule = () => void visited++;
  const table = tool === "nftables" ? renderedPolicyTable(plan) : undefined;
  const pods = [...plan.pods.values()].filter(({ ingress }) => ingress).length / 2;
  for (let nth = 0; nth < pods; nth++) {
    const pod = benchLocalPod(nth);
    // Another pod of the namespace, which the first rule of the policy allows.
    const peer = benchPod(1_000 * ((nth + 1) % 10) + 10 * pod.namespace + 4);
    if (peer.isLocal || peer.namespace !== pod.namespace) continue;
    counted++;
    const connection = {
      from: parseIpAddress(peer.address),
      to: parseIpAddress(pod.address),
      transport: { protocol: "TCP", port: parsePort(8_000 + nth) },
    } as const;
    const { verdict } = table
      ? walkConnection(table, connection, { onRule })
      : walkIptables(plan, connection, { onRule });
    if (verdict !== "ACCEPT") throw new Error(`The packet to ${pod.address} is ${verdict}`);
  }
  return visited / counted;
}
