/** The cases of NetworkPolicy and random policies, on the rules that would be written. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { objectKey } from "../../lib/api/kind.ts";
import {
  IP_FAMILIES,
  type IpFamily,
  ipFamilyOf,
  parseIpAddress,
} from "../../lib/net/ip_address.ts";
import { parsePort, parseProtocol } from "../../lib/net/port.ts";
import { type Connection, judgeConnection, viewPlan } from "../../lib/policy/judge_connection.ts";
import type { PodKey, PolicyKey } from "../../lib/policy/policy_plan.ts";
import { PolicyPlanner, type PolicyPlanOptions } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "./case_addresses.ts";
import { POLICY_CASES } from "./cases.ts";
import { caseObjects, casePods, isExpected } from "./policy_case.ts";
import { ADDRESSES, clusterHistory, PORTS, PROTOCOLS } from "./random_cluster.ts";
import { walkConnection, walkedTexts } from "../support/walk/iptables_policies.ts";

const OPTIONS = {
  nodeName: "n1",
  deny: { action: "reject" },
  closedRanges: [],
  podLinks: [],
} as const;

function plannerOf(
  state: PolicyState,
  options: Pick<PolicyPlanOptions, "family"> & Partial<PolicyPlanOptions>,
) {
  const planner = new PolicyPlanner(state, { ...OPTIONS, ...options });
  planner.update();
  return planner;
}

for (const family of IP_FAMILIES) {
  for (const { name, steps } of POLICY_CASES) {
    Deno.test(`the rules of iptables: ${name} (${family})`, () => {
      for (const step of steps) {
        const { addressOf } = caseAddresses(family);
        const state = new PolicyState();
        const { namespaces, pods, policies } = caseObjects(step, caseAddresses(family));
        for (const each of policies) state.setPolicy(objectKey(each) as PolicyKey, each);
        for (const each of pods) state.setPod(objectKey(each) as PodKey, each);
        for (const each of namespaces) state.setNamespace(each.metadata.name, each);
        const texts = walkedTexts(plannerOf(state, { family }).plan);
        for (const expectation of step.expected) {
          for (const from of casePods()) {
            for (const to of casePods()) {
              const { protocol, port } = expectation;
              const walk = walkConnection(texts, {
                from: addressOf(from),
                to: addressOf(to),
                transport: { protocol, port: parsePort(port) },
              });
              const isAllowed = from === to || isExpected(expectation, { from, to });
              const wanted = isAllowed ? "ACCEPT" : "REJECT";
              assertEquals(walk.verdict, wanted, `${from} → ${to} ${protocol} ${port}`);
            }
          }
        }
      }
    });
  }
}

function connections(family: IpFamily): readonly Connection[] {
  const outside = family === "IPv4" ? "198.51.100.1" : "2001:db8:1::1";
  const addresses = [...ADDRESSES, outside].map(parseIpAddress)
    .filter((address) => ipFamilyOf(address) === family);
  const transports = PROTOCOLS.flatMap((protocol) =>
    PORTS.map((port) => ({
      transport: { protocol: parseProtocol(protocol), port: parsePort(port) },
    }))
  );
  return addresses.flatMap((from) =>
    addresses.flatMap((to) =>
      [{}, ...transports, { ...transports[0]!, isFromOwnNode: true }].map((each) => ({
        from,
        to,
        ...each,
      }))
    )
  );
}

Deno.test("the rules of iptables agree with the evaluator on random policies", () => {
  let denied = 0;
  fc.assert(
    fc.property(
      clusterHistory,
      fc.constantFrom(...IP_FAMILIES),
      fc.constantFrom(...["none", "closed", "log"] as const),
      (history, family, variant) => {
        const state = new PolicyState();
        for (const { kind, key, object } of history) {
          if (kind === "pod") state.setPod(key as PodKey, object);
          else if (kind === "namespace") state.setNamespace(key, object);
          else state.setPolicy(key as PolicyKey, object);
        }
        const range = caseAddresses(family).range;
        const planner = plannerOf(state, {
          family,
          ...(variant === "closed" && { closedRanges: [range as never] }),
          ...(variant === "log" &&
            { deny: { action: "drop", log: { perMinute: 10, group: 100 } } }),
        });
        const [texts, view] = [walkedTexts(planner.plan), viewPlan(planner.plan)];
        for (const connection of connections(family)) {
          const { isAllowed } = judgeConnection(view, connection);
          // What the node itself sends is not judged at all, by whatever address.
          const wanted = isAllowed || connection.isFromOwnNode === true;
          const { verdict } = walkConnection(texts, connection);
          assertEquals(verdict === "ACCEPT", wanted, JSON.stringify(connection));
          if (!wanted) denied++;
        }
      },
    ),
    { numRuns: 300 },
  );
  assert(denied > 1_000, `only ${denied} connections were denied`);
});
