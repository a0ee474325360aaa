/** Policies as large as a tenant can make them: short steps, bounded plans, and no harm to others. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { NetworkPolicySpec } from "../../lib/api/kinds/network_policy.ts";
import { IP_FAMILIES, parseIpAddress } from "../../lib/net/ip_address.ts";
import { inspectPolicyPlan } from "../../lib/policy/policy_plan.ts";
import {
  endSentence,
  judgeConnection,
  viewCluster,
  viewPlan,
} from "../../lib/policy/judge_connection.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import {
  IPV4_PLAN,
  podKey,
  POLICY_NODE,
  policyKey,
  setPod,
  setPolicy,
} from "../support/builders/policy_objects.ts";

/** Parts of a policy that one step may look at. */
const MOST_PARTS_PER_STEP = 512;

function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

const block4 = (index: number) => `10.${index >> 8 & 255}.${index & 255}.0/24`;
const block6 = (index: number) => `2001:db8:${index.toString(16)}::/64`;
const allow = (from: NonNullable<NetworkPolicySpec["ingress"]>[number]["from"]) => ({
  podSelector: {},
  ingress: [{ from: from! }],
});

/** Policies, each with its number of parts. */
const LARGE: readonly {
  readonly what: string;
  readonly parts: number;
  readonly specs: readonly NetworkPolicySpec[];
}[] = [
  {
    what: "5,000 blocks in one rule",
    parts: 5_000,
    specs: [allow(times(5_000, (index) => ({ ipBlock: { cidr: block4(index) } })))],
  },
  {
    what: "19,000 IPv6 blocks in one rule",
    parts: 19_000,
    specs: [allow(times(19_000, (index) => ({ ipBlock: { cidr: block6(index) } })))],
  },
  {
    what: "19,000 exceptions of one block",
    parts: 19_000,
    specs: [allow([{ ipBlock: { cidr: "::/0", except: times(19_000, block6) } }])],
  },
  {
    what: "5,000 rules",
    parts: 5_000,
    specs: [{
      podSelector: {},
      ingress: times(5_000, (index) => ({ from: [{ ipBlock: { cidr: block4(index) } }] })),
    }],
  },
  {
    what: "5,000 selectors in one rule, a megabyte of text",
    parts: 10_000,
    specs: [
      allow(times(5_000, (index) => ({
        namespaceSelector: { matchLabels: { [`${"k".repeat(40)}-${index}`]: "v".repeat(60) } },
      }))),
    ],
  },
  {
    what: "ten policies with selectors of 1,000 labels",
    parts: 10,
    specs: times(10, () => {
      const matchLabels = Object.fromEntries(times(1_000, (index) => [`l${index}`, "v"]));
      return { podSelector: {}, ingress: [{ from: [{ podSelector: { matchLabels } }] }] };
    }),
  },
  {
    what: "10,000 policies in one namespace",
    parts: 10_000,
    specs: times(10_000, (index) => allow([{ ipBlock: { cidr: block4(index) } }])),
  },
];

for (const { what, parts, specs } of LARGE) {
  Deno.test(`a plan is made in short steps with ${what}`, () => {
    for (const family of IP_FAMILIES) {
      const state = new PolicyState();
      setPod(state, "x/a", { address: "10.1.0.1,fd00::1" });
      setPod(state, "y/a", { address: "10.1.0.2,fd00::2" });
      setPolicy(state, "y/p", { podSelector: {}, ingress: [{}] });
      const planner = new PolicyPlanner(state, { ...IPV4_PLAN, family });
      for (const [index, spec] of specs.entries()) setPolicy(state, `x/${index}`, spec);
      let steps = 0;
      for (const _ of planner.updateInSteps()) steps++;
      assert(steps >= parts / MOST_PARTS_PER_STEP, `${family}: ${steps} steps`);
      const { pods, lists } = planner.plan;
      assertEquals(lists.get(pods.get(podKey("y/a"))!.ingress!)!.rules.length, 1);
      const rules = [...lists.values()].reduce((sum, list) => sum + list.rules.length, 0);
      assert(rules <= 5_001, `${family}: ${rules} rules`);
    }
  });
}

Deno.test("odd characters in names of labels and ports stay out of the plan", () => {
  const state = new PolicyState();
  setPod(state, "x/a", { address: "10.1.0.1" });
  const odd = 'a"]};\n\u0000$(x)';
  setPolicy(state, "x/p", {
    podSelector: {},
    ingress: [{ from: [{ podSelector: { matchLabels: { [odd]: odd } } }], ports: [{ port: odd }] }],
  });
  const planner = new PolicyPlanner(state, IPV4_PLAN);
  planner.update();
  const { lists, peers } = planner.plan;
  assertEquals(JSON.stringify([[...lists], [...peers.keys()]]).includes("$(x)"), false);
});

/** Pods that no two policies select alike, and two large policies for all of them. */
function crowd(
  state: PolicyState,
  pods: readonly number[],
  nodeOf: (index: number) => string = () => POLICY_NODE,
): void {
  for (const index of pods) {
    const created = `2026-01-01T00:00:${10 + index}Z`;
    const labels = { pod: `${index}` };
    setPod(state, `x/${index}`, {
      address: `10.1.0.${index + 1}`,
      nodeName: nodeOf(index),
      labels,
      created,
    });
    setPolicy(state, `x/own-${index}`, { podSelector: { matchLabels: labels }, ingress: [{}] });
  }
  for (const direction of ["ingress", "egress"] as const) {
    const end = direction === "ingress" ? "from" : "to";
    setPolicy(state, `x/${direction}`, {
      podSelector: {},
      policyTypes: [direction === "ingress" ? "Ingress" : "Egress"],
      [direction]: times(4_900, (index) => ({ [end]: [{ ipBlock: { cidr: block4(index) } }] })),
    });
  }
  setPod(state, "y/a", { address: "10.1.1.1" });
  setPolicy(state, "y/p", { podSelector: {}, ingress: [{}] });
}

Deno.test("the pods of one namespace have a bounded number of rules on a node, the oldest pods first", () => {
  const indices = times(40, (index) => index);
  for (const order of [indices, indices.toReversed()]) {
    const state = new PolicyState();
    const planner = new PolicyPlanner(state, IPV4_PLAN);
    crowd(state, order);
    planner.update();
    const { pods, lists } = planner.plan;
    const rulesOf = (key: string) => {
      const { ingress, egress } = pods.get(podKey(key))!;
      return [ingress, egress].map((id) => id && lists.get(id)!.rules.length);
    };
    // All pods share the list of egress.
    assertEquals(indices.map((index) => rulesOf(`x/${index}`)), [
      ...times(3, () => [4_901, 4_900]),
      ...times(37, () => [0, 0]),
    ]);
    assertEquals(rulesOf("y/a"), [1, undefined]);
    assertEquals(planner.takeProblems().map(({ object, value }) => `${object} ${value}`), [
      "x 200940 for 40 pods of one node",
    ]);
    const to = parseIpAddress("10.1.0.40");
    const from = parseIpAddress("10.0.0.1");
    for (const view of [viewPlan(planner.plan), viewCluster(state, "IPv4")]) {
      assertStringIncludes(
        endSentence("ingress", judgeConnection(view, { from, to }).ingress),
        "and allow nothing: there are too many rules",
      );
    }
    assertEquals(inspectPolicyPlan(planner.plan, "").refused, 37);
    // A pod that goes makes room for the next one; a policy that goes for all.
    state.setPod(podKey("x/0"), undefined);
    planner.update();
    assertEquals([1, 3, 4].map((index) => rulesOf(`x/${index}`)[0]), [4_901, 4_901, 0]);
    state.setPolicy(policyKey("x/ingress"), undefined);
    planner.update();
    assertEquals([1, 39].map((index) => rulesOf(`x/${index}`)), [[1, 4_900], [1, 4_900]]);
    assertEquals(planner.takeProblems().length, 1);
  }
});

Deno.test("the pods of a namespace have the same room on each node, and a list that is too large takes none", () => {
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, { ...IPV4_PLAN, includesRemotePods: true });
  crowd(state, times(8, (index) => index), (index) => index < 4 ? POLICY_NODE : "n2");
  // The oldest pod of its node would have 5,900 rules in one direction, and 4,900 in the other.
  setPolicy(state, "x/large", {
    podSelector: { matchLabels: { pod: "0" } },
    ingress: times(
      1_000,
      (index) => ({ from: [{ ipBlock: { cidr: `10.9.0.${index % 250}/32` } }] }),
    ),
  });
  planner.update();
  const { pods, lists } = planner.plan;
  const rulesOf = (index: number) =>
    lists.get(pods.get(podKey(`x/${index}`))!.ingress!)!.rules.length;
  assertEquals(times(8, rulesOf), [0, 4_901, 4_901, 4_901, 4_901, 4_901, 4_901, 0]);
});
