/** Tests the tools with the cases: the explanation, the truth table and the comparison. */
import { assert, assertEquals } from "@std/assert";
import { parsePort, type Protocol } from "../../lib/net/port.ts";
import type { AllowedPorts } from "../../lib/policy/allowed_ports.ts";
import { comparePolicies } from "../../lib/policy/compare_policies.ts";
import { connectionTable, type TableGroup } from "../../lib/policy/connection_table.ts";
import {
  denialSentence,
  endSentence,
  judgeConnection,
  viewCluster,
} from "../../lib/policy/judge_connection.ts";
import type { PodKey } from "../../lib/policy/policy_plan.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "./case_addresses.ts";
import { POLICY_CASES, UPSTREAM_CASES } from "./cases.ts";
import {
  applyStep,
  CASE_NAMESPACES,
  caseObjects,
  casePods,
  isExpected,
  type PolicyStep,
} from "./policy_case.ts";

const PAIRS = casePods().flatMap((from) =>
  casePods().filter((to) => to !== from).map((to) => ({ from, to }))
);

function stateOf(step: PolicyStep): PolicyState {
  const state = new PolicyState();
  applyStep(state, caseObjects(step, caseAddresses("IPv4")));
  return state;
}

function hasPort(ports: AllowedPorts, protocol: Protocol, port: number): boolean {
  return ports === "all" ||
    ports.some((each) => each.protocol === protocol && each.from <= port && port <= each.to);
}

for (const { name, steps } of UPSTREAM_CASES) {
  Deno.test(`the explanation of '${name}' has the verdict, and names the policies that decide`, () => {
    for (const step of steps) {
      const state = stateOf(step);
      const view = viewCluster(state, "IPv4");
      const { addressOf } = caseAddresses("IPv4");
      const { policies = [], clusterPolicies = [] } = step;
      const keys = [
        ...policies.map(({ namespace, name }) => `${namespace}/${name}`),
        ...clusterPolicies.map(({ name }) => `ClusterNetworkPolicy ${name} (tier `),
      ];
      for (const { protocol, port, rows } of step.expected) {
        for (const { from, to } of PAIRS) {
          const judged = judgeConnection(view, {
            from: addressOf(from),
            to: addressOf(to),
            transport: { protocol, port: parsePort(port) },
          });
          const isAllowed = isExpected({ protocol, port, rows }, { from, to });
          const denial = denialSentence(judged);
          assertEquals(denial === undefined, isAllowed, `${from} → ${to}: ${denial}`);
          const [egress, ingress] = [
            endSentence("egress", judged.egress),
            endSentence("ingress", judged.ingress),
          ];
          const own = keys.filter((key) => `${egress} ${ingress}`.includes(`${key}`));
          if (!isAllowed) assert(own.length > 0, `${denial} names none of ${keys}`);
          if (judged.ingress.kind === "allowed") {
            const { policy, index, tier } = judged.ingress;
            if (tier === undefined) assertEquals(policy.split("/")[0], to.split("/")[0]);
            const does = tier ? `(tier ${tier}) accepts` : "lets";
            const sentence = `${policy} ${does} it into ${to}: spec.ingress[${index}]`;
            assert(ingress.includes(sentence), ingress);
          }
        }
      }
    }
  });
}

for (const { name, steps } of POLICY_CASES) {
  Deno.test(`the truth tables of '${name}' have every pair of pods as expected`, () => {
    for (const step of steps) {
      const state = stateOf(step);
      for (const namespace of CASE_NAMESPACES) {
        const { groups, ports } = connectionTable(state, { namespace, family: "IPv4" });
        const placeOf = (pod: string) =>
          groups.findIndex((group: TableGroup) => group.pods?.includes(pod as PodKey));
        for (const expectation of step.expected) {
          for (const { from, to } of PAIRS) {
            const cell = ports[placeOf(from)]![placeOf(to)];
            const isOwn = [from, to].some((pod) => pod.startsWith(`${namespace}/`));
            assertEquals(cell !== undefined, isOwn);
            if (cell === undefined) continue;
            assertEquals(
              hasPort(cell, expectation.protocol, expectation.port),
              isExpected(expectation, { from, to }),
              `${from} → ${to} in ${namespace}: ${JSON.stringify(cell)}`,
            );
          }
        }
      }
    }
  });

  Deno.test(`the comparison with '${name}' names every pair that is cut, and no other`, () => {
    for (const step of steps) {
      const after = stateOf(step);
      const before = stateOf({ ...step, policies: [], clusterPolicies: [] });
      const { changes, openedPairs, groupPairsLeftOut } = comparePolicies(
        [before, after],
        "IPv4",
      );
      assertEquals([openedPairs, groupPairsLeftOut], [0, 0]);
      assertEquals(comparePolicies([after, before], "IPv4").cutPairs, 0);
      for (const { protocol, port, rows } of step.expected) {
        for (const { from, to } of PAIRS) {
          const found = changes.filter((change) =>
            change.from.pods.includes(from as PodKey) && change.to.pods.includes(to as PodKey)
          );
          const ports = found.length === 0 ? "all" : found[0]!.after;
          assert(found.length <= 1, `${from} → ${to}: ${found.length} changes`);
          assertEquals(
            hasPort(ports, protocol, port),
            isExpected({ protocol, port, rows }, { from, to }),
            `${from} → ${to} ${protocol} ${port}`,
          );
          for (const { policies } of found) assert(policies.length > 0);
        }
      }
    }
  });
}
