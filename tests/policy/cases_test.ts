/** The cases against the rules of the plan and of the whole cluster, from one step to the next. */
import { assert, assertEquals } from "@std/assert";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import {
  judgeConnection,
  type PolicyView,
  viewCluster,
  viewPlan,
} from "../../lib/policy/judge_connection.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "./case_addresses.ts";
import { MORE_CASES, POLICY_CASES, UPSTREAM_CASES } from "./cases.ts";
import {
  applyStep,
  caseObjects,
  casePods,
  isExpected,
  type PolicyCase,
  type PolicyStep,
} from "./policy_case.ts";

/** Connections that are not as expected, as sentences. */
function faults(view: PolicyView, { expected }: PolicyStep, family: IpFamily): readonly string[] {
  const { addressOf } = caseAddresses(family);
  const pairs = casePods().flatMap((from) => casePods().map((to) => ({ from, to })));
  return expected.flatMap((expectation) =>
    pairs.filter(({ from, to }) => from !== to).flatMap(({ from, to }) => {
      const { protocol, port } = expectation;
      const judged = judgeConnection(view, {
        from: addressOf(from),
        to: addressOf(to),
        transport: { protocol, port: parsePort(port) },
      });
      if (judged.isAllowed === isExpected(expectation, { from, to })) return [];
      return [`${from} → ${to} ${protocol} ${port}: ${JSON.stringify(judged)}`];
    })
  );
}

function run({ steps }: PolicyCase, family: IpFamily): void {
  const state = new PolicyState();
  const options = {
    family,
    nodeName: "n1",
    deny: { action: "drop" },
    closedRanges: [],
    podLinks: [],
  } as const;
  const planner = new PolicyPlanner(state, options);
  for (const [index, step] of steps.entries()) {
    applyStep(state, caseObjects(step, caseAddresses(family)));
    planner.update();
    assertEquals(faults(viewPlan(planner.plan), step, family), [], `plan, step ${index}`);
    assertEquals(faults(viewCluster(state, family), step, family), [], `cluster, step ${index}`);
  }
}

for (const family of IP_FAMILIES) {
  for (const each of POLICY_CASES) {
    Deno.test(`${each.name} (${family}${each.upstream ? `, upstream ${each.upstream}` : ""})`, () => {
      run(each, family);
    });
  }
}

Deno.test("all connectivity cases of Kubernetes are there, each once", () => {
  assertEquals(new Set(UPSTREAM_CASES.map(({ upstream }) => upstream)).size, 48);
  assertEquals(UPSTREAM_CASES.length, 48);
});

Deno.test("an executor that passes everything, or nothing, fails", () => {
  const open: PolicyView = { podAt: () => undefined, isClosed: () => false, hasPeer: () => true };
  const isolating = UPSTREAM_CASES.filter(({ steps }) =>
    steps.some((step) => faults(open, step, "IPv4").length > 0)
  );
  // Two cases are about an open cluster.
  assertEquals(isolating.length, 46);
  assert(MORE_CASES.every(({ steps }) => steps.every(({ expected }) => expected.length > 0)));
});

Deno.test("an unknown field is reported with its policy", () => {
  const bad = MORE_CASES.find(({ name }) => name.startsWith("an unknown field"))!;
  for (const step of bad.steps) {
    const state = new PolicyState();
    applyStep(state, caseObjects(step, caseAddresses("IPv4")));
    const problems = [...state.policies.values()].flatMap((policy) => policy.problems);
    assertEquals(problems.map(({ object }) => object)[0], "x/p", JSON.stringify(step.policies));
  }
});
