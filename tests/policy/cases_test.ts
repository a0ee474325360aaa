/**
 * The cases and random clusters, judged by the rules of the plan and of the whole cluster, and by walks
 * through what each tool would write.
 */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { ClusterNetworkPolicySpec } from "../../lib/api/kinds/cluster_network_policy.ts";
import {
  IP_FAMILIES,
  type IpFamily,
  ipFamilyOf,
  parseIpAddress,
} from "../../lib/net/ip_address.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parsePort, parseProtocol } from "../../lib/net/port.ts";
import {
  type Connection,
  judgeConnection,
  type PolicyView,
  viewCluster,
  viewPlan,
} from "../../lib/policy/judge_connection.ts";
import type { PolicyPlan } from "../../lib/policy/policy_plan.ts";
import { PolicyPlanner, type PolicyPlanOptions } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import {
  IPV4_PLAN,
  setClusterPolicy,
  setPod,
  setPolicy,
} from "../support/builders/policy_objects.ts";
import { walkConnection as walkIptables, walkedTexts } from "../support/walk/iptables_policies.ts";
import { renderedPolicyTable, walkConnection as walkNft } from "../support/walk/nft_policies.ts";
import { caseAddresses } from "./case_addresses.ts";
import { FAULTY_CASES } from "./cluster_cases.ts";
import { MORE_CASES, POLICY_CASES, UPSTREAM_CASES } from "./cases.ts";
import { applyStep, caseObjects, casePods, isExpected, type PolicyStep } from "./policy_case.ts";
import {
  ADDRESSES,
  clusterHistory,
  handleEvent,
  OUTSIDE,
  PORTS,
  PROTOCOLS,
} from "./random_cluster.ts";

/** Judges connections. Says more where it is wrong. */
type Judge = (connection: Connection) => { readonly isAllowed: boolean; readonly why: unknown };

function judgeOf(view: PolicyView): Judge {
  return (connection) => {
    const judged = judgeConnection(view, connection);
    return { isAllowed: judged.isAllowed, why: judged };
  };
}

/** What each tool writes for a plan. */
const TOOLS = {
  nftables(plan: PolicyPlan): Judge {
    const table = renderedPolicyTable(plan);
    return (connection) => {
      const { verdict, path } = walkNft(table, connection);
      return { isAllowed: verdict === "ACCEPT", why: path };
    };
  },
  iptables(plan: PolicyPlan): Judge {
    const texts = walkedTexts(plan);
    return (connection) => {
      const { verdict, path } = walkIptables(texts, connection);
      return { isAllowed: verdict === "ACCEPT", why: path };
    };
  },
};

/** Connections that are not as expected, as sentences. */
function faults(judge: Judge, { expected }: PolicyStep, family: IpFamily): readonly string[] {
  const { addressOf } = caseAddresses(family);
  const pairs = casePods().flatMap((from) => casePods().map((to) => ({ from, to })));
  return expected.flatMap((expectation) =>
    pairs.flatMap(({ from, to }) => {
      const { protocol, port } = expectation;
      const { isAllowed, why } = judge({
        from: addressOf(from),
        to: addressOf(to),
        transport: { protocol, port: parsePort(port) },
      });
      if (isAllowed === (from === to || isExpected(expectation, { from, to }))) return [];
      return [`${from} → ${to} ${protocol} ${port}: ${JSON.stringify(why)}`];
    })
  );
}

for (const family of IP_FAMILIES) {
  for (const { name, steps, upstream } of POLICY_CASES) {
    Deno.test(`${name} (${family}${upstream ? `, upstream ${upstream}` : ""})`, () => {
      const state = new PolicyState();
      const planner = new PolicyPlanner(state, { ...IPV4_PLAN, family });
      for (const [index, step] of steps.entries()) {
        applyStep(state, caseObjects(step, caseAddresses(family)));
        planner.update();
        const { plan } = planner;
        const judges = {
          plan: judgeOf(viewPlan(plan)),
          cluster: judgeOf(viewCluster(state, family)),
          nftables: TOOLS.nftables(plan),
          iptables: TOOLS.iptables(plan),
        };
        for (const [what, judge] of Object.entries(judges)) {
          assertEquals(faults(judge, step, family), [], `${what}, step ${index}`);
        }
      }
    });
  }
}

function connectionsIn(family: IpFamily): readonly Connection[] {
  const outside = OUTSIDE[family];
  const addresses = [...ADDRESSES, outside].map(parseIpAddress)
    .filter((address) => ipFamilyOf(address) === family);
  const transports = PROTOCOLS.flatMap((protocol) =>
    PORTS.map((port) => ({
      transport: { protocol: parseProtocol(protocol), port: parsePort(port) },
    }))
  );
  const fromNode = { ...transports[0]!, isFromOwnNode: true };
  return addresses.flatMap((from) =>
    addresses.flatMap((to) =>
      [{}, ...transports, ...(`${from}` === outside ? [fromNode] : [])].map((each) => ({
        from,
        to,
        ...each,
      }))
    )
  );
}

for (const [tool, judgeBy] of Object.entries(TOOLS)) {
  Deno.test(`the rules of ${tool} judge every connection of a random cluster as the evaluator does`, () => {
    let [denied, allowed] = [0, 0];
    const variants = fc.constantFrom("none" as const, "closed" as const, "log" as const);
    fc.assert(
      fc.property(
        clusterHistory,
        fc.constantFrom(...IP_FAMILIES),
        variants,
        (history, family, variant) => {
          const options: Partial<PolicyPlanOptions> = {
            none: {},
            closed: { closedRanges: [parseCidr(caseAddresses(family).range)] },
            log: { deny: { action: "drop" as const, log: { perMinute: 10, group: 100 } } },
          }[variant];
          const state = new PolicyState();
          const planner = new PolicyPlanner(state, { ...IPV4_PLAN, family, ...options });
          for (const event of history) handleEvent(state, event);
          planner.update();
          const [judge, view] = [judgeBy(planner.plan), viewPlan(planner.plan)];
          for (const connection of connectionsIn(family)) {
            const { isAllowed: isWanted } = judgeConnection(view, connection);
            const { isAllowed, why } = judge(connection);
            assertEquals(isAllowed, isWanted, `${JSON.stringify(connection)}: ${why}`);
            if (isAllowed) allowed++;
            else denied++;
          }
        },
      ),
      { numRuns: 300 },
    );
    assert(denied > 1_000 && allowed > 1_000, `${denied} denied, ${allowed} allowed`);
  });

  Deno.test(`${tool}: an address of a closed range has no traffic but from its node until it is known`, () => {
    const state = new PolicyState();
    const closedRanges = [parseCidr("10.1.0.0/24")];
    const planner = new PolicyPlanner(state, { ...IPV4_PLAN, closedRanges });
    setPod(state, "x/a", { address: "10.1.0.1" });
    planner.update();
    const judge = judgeBy(planner.plan);
    const [known, unknown, outside] = ["10.1.0.1", "10.1.0.2", "198.51.100.1"].map(parseIpAddress);
    for (
      const [from, to, isAllowed] of [
        [outside, known, true],
        [known, outside, true],
        [outside, unknown, false],
        [unknown, outside, false],
      ] as const
    ) {
      assertEquals(judge({ from: from!, to: to! }).isAllowed, isAllowed, `${from} ${to}`);
    }
    assert(judge({ from: outside!, to: unknown!, isFromOwnNode: true }).isAllowed);
  });
}

Deno.test("an altered rule of the text changes the result of a walk", () => {
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, IPV4_PLAN);
  setPod(state, "x/a", { address: "10.1.0.1" });
  setPolicy(state, "x/p", { podSelector: {} });
  planner.update();
  const connection = { from: parseIpAddress("10.9.0.1"), to: parseIpAddress("10.1.0.1") };
  const table = renderedPolicyTable(planner.plan);
  assertEquals(walkNft(table, connection).verdict, "REJECT");
  table.elements.get("to-pod")?.clear();
  assertEquals(walkNft(table, connection).verdict, "ACCEPT");
  const { chains, sets } = walkedTexts(planner.plan);
  assertEquals(walkIptables({ chains, sets }, connection).verdict, "REJECT");
  assertEquals(
    walkIptables({ chains: new Map([...chains, ["FORWARD", []]]), sets }, connection).verdict,
    "ACCEPT",
  );
});

Deno.test("all connectivity cases of Kubernetes are there, each once", () => {
  assertEquals(new Set(UPSTREAM_CASES.map(({ upstream }) => upstream)).size, 48);
  assertEquals(UPSTREAM_CASES.length, 48);
});

Deno.test("an executor that passes everything, or nothing, fails", () => {
  const open: Judge = () => ({ isAllowed: true, why: "open" });
  const isolating = UPSTREAM_CASES.filter(({ steps }) =>
    steps.some((step) => faults(open, step, "IPv4").length > 0)
  );
  // Two cases are about an open cluster.
  assertEquals(isolating.length, 46);
  assert(MORE_CASES.every(({ steps }) => steps.every(({ expected }) => expected.length > 0)));
});

Deno.test("policies of an administrator that are too large deny everything, in every tool", () => {
  const accept = (index: number) => ({
    action: "Accept",
    from: [{ pods: { namespaceSelector: {}, podSelector: { matchLabels: { app: `${index}` } } } }],
  });
  const networks = Array.from({ length: 25 }, (_, index) => `10.${index}.0.0/16`);
  const peers = Array.from({ length: 25 }, () => ({ networks }));
  const large = Array.from({ length: 32 }, () => ({ action: "Accept", to: peers }));
  const shapes: readonly (readonly [number, Partial<ClusterNetworkPolicySpec>])[] = [
    [1, { ingress: [accept(0)], egress: large }],
    [201, { ingress: Array.from({ length: 25 }, (_, index) => accept(index)) }],
  ];
  for (const [policies, spec] of shapes) {
    const state = new PolicyState();
    const planner = new PolicyPlanner(state, IPV4_PLAN);
    setPod(state, "x/a", { address: "10.1.0.1", labels: { app: "0" } });
    setPod(state, "x/b", { address: "10.1.0.2", labels: { app: "0" } });
    for (let index = 0; index < policies; index++) setClusterPolicy(state, `p${index}`, spec);
    planner.update();
    const connection = { from: parseIpAddress("10.1.0.2"), to: parseIpAddress("10.1.0.1") };
    const judges = [judgeOf(viewPlan(planner.plan)), judgeOf(viewCluster(state, "IPv4"))];
    const tools = Object.values(TOOLS).map((judgeBy) => judgeBy(planner.plan));
    for (const judge of [...judges, ...tools]) assert(!judge(connection).isAllowed);
    const problems = [...state.policies.values()].flatMap((policy) => policy.problems);
    assertEquals([...problems, ...planner.takeProblems()].length > 0, true);
  }
});

Deno.test("what is not understood is reported with its policy", () => {
  const bad = MORE_CASES.find(({ name }) => name.startsWith("an unknown field"))!;
  for (const { steps } of FAULTY_CASES) {
    for (const step of steps) {
      const state = new PolicyState();
      applyStep(state, caseObjects(step, caseAddresses("IPv4")));
      const problems = [...state.policies.values()].flatMap((policy) => policy.problems);
      const faulty = new Set(problems.map(({ object }) => object));
      // Where whole fields cannot be read, the reader has reported it.
      assertEquals([...faulty], ["p"], JSON.stringify(step.clusterPolicies));
    }
  }
  for (const step of bad.steps) {
    const state = new PolicyState();
    applyStep(state, caseObjects(step, caseAddresses("IPv4")));
    const problems = [...state.policies.values()].flatMap((policy) => policy.problems);
    assertEquals(problems.map(({ object }) => object)[0], "x/p", JSON.stringify(step.policies));
  }
});
