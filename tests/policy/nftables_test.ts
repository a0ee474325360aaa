/** The text of nftables, walked, against the evaluator: the cases, and random clusters. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { walkConnection } from "../support/walk/nft_policies.ts";
import {
  IP_FAMILIES,
  type IpFamily,
  ipFamilyOf,
  parseIpAddress,
} from "../../lib/net/ip_address.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parsePort, parseProtocol } from "../../lib/net/port.ts";
import { type Connection, judgeConnection, viewPlan } from "../../lib/policy/judge_connection.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { setPod, setPolicy } from "../support/builders/policy_objects.ts";
import { renderedPolicyTable } from "../support/stages/policy_nft_stage.ts";
import { caseAddresses } from "./case_addresses.ts";
import { POLICY_CASES } from "./cases.ts";
import { applyStep, caseObjects, casePods, isExpected } from "./policy_case.ts";
import { ADDRESSES, clusterHistory, handleEvent, PORTS, PROTOCOLS } from "./random_cluster.ts";

function plannerOf(state: PolicyState, family: IpFamily, log = false): PolicyPlanner {
  const deny = { action: "reject" as const, ...(log && { log: { perMinute: 10, group: 100 } }) };
  return new PolicyPlanner(state, { family, nodeName: "n1", deny, closedRanges: [], podLinks: [] });
}

for (const family of IP_FAMILIES) {
  for (const { name, steps } of POLICY_CASES) {
    Deno.test(`nftables: ${name} (${family})`, () => {
      const state = new PolicyState();
      const planner = plannerOf(state, family);
      const addresses = caseAddresses(family);
      for (const step of steps) {
        applyStep(state, caseObjects(step, addresses));
        planner.update();
        const table = renderedPolicyTable(planner.plan);
        for (const expectation of step.expected) {
          const { protocol, port } = expectation;
          for (const from of casePods()) {
            for (const to of casePods().filter((to) => to !== from)) {
              const { verdict, path } = walkConnection(table, {
                from: addresses.addressOf(from),
                to: addresses.addressOf(to),
                transport: { protocol, port: parsePort(port) },
              });
              const text = `${from} → ${to} ${protocol} ${port}: ${JSON.stringify(path)}`;
              assertEquals(verdict === "ACCEPT", isExpected(expectation, { from, to }), text);
            }
          }
        }
      }
    });
  }
}

Deno.test("nftables judges every connection of a random cluster as the evaluator does", () => {
  let [denied, allowed] = [0, 0];
  fc.assert(
    fc.property(
      clusterHistory,
      fc.constantFrom(...IP_FAMILIES),
      fc.boolean(),
      (history, family, log) => {
        const state = new PolicyState();
        const planner = plannerOf(state, family, log);
        for (const event of history) handleEvent(state, event);
        planner.update();
        const table = renderedPolicyTable(planner.plan);
        const view = viewPlan(planner.plan);
        for (const connection of connectionsIn(family)) {
          const { isAllowed } = judgeConnection(view, connection);
          const { verdict, path } = walkConnection(table, connection);
          const text = `${JSON.stringify(connection)}: ${JSON.stringify(path)}`;
          assertEquals(verdict === "ACCEPT", isAllowed, text);
          if (isAllowed) allowed++;
          else denied++;
        }
      },
    ),
    { numRuns: 500 },
  );
  assert(denied > 1_000 && allowed > 1_000, `${denied} denied, ${allowed} allowed`);
});

function connectionsIn(family: IpFamily): readonly Connection[] {
  const outside = family === "IPv4" ? "198.51.100.1" : "2001:db8:1::1";
  const addresses = [...ADDRESSES, outside].map(parseIpAddress)
    .filter((address) => ipFamilyOf(address) === family);
  const transports = [
    {},
    ...PROTOCOLS.flatMap((protocol) =>
      PORTS.map((port) => ({
        transport: { protocol: parseProtocol(protocol), port: parsePort(port) },
      }))
    ),
  ];
  const pairs = addresses.flatMap((from) => addresses.map((to) => ({ from, to })));
  return [false, true].flatMap((isFromOwnNode) =>
    pairs.filter(({ from }) => !isFromOwnNode || `${from}` === outside).flatMap((pair) =>
      transports.map((transport) => ({ ...pair, ...transport, isFromOwnNode }))
    )
  );
}

Deno.test("nftables: an address of a closed range has no traffic but from its node until it is known", () => {
  const state = new PolicyState();
  const deny = { action: "drop" } as const;
  const closedRanges = [parseCidr("10.1.0.0/24")];
  const options = { family: "IPv4", nodeName: "n1", deny, closedRanges, podLinks: [] } as const;
  const planner = new PolicyPlanner(state, options);
  setPod(state, "x/a", { address: "10.1.0.1" });
  planner.update();
  const table = renderedPolicyTable(planner.plan);
  const [known, unknown, outside] = ["10.1.0.1", "10.1.0.2", "198.51.100.1"].map(parseIpAddress);
  const verdictOf = (connection: Connection) => walkConnection(table, connection).verdict;
  assertEquals(verdictOf({ from: outside!, to: known! }), "ACCEPT");
  assertEquals(verdictOf({ from: known!, to: outside! }), "ACCEPT");
  assertEquals(verdictOf({ from: outside!, to: unknown! }), "DROP");
  assertEquals(verdictOf({ from: unknown!, to: outside! }), "DROP");
  assertEquals(verdictOf({ from: outside!, to: unknown!, isFromOwnNode: true }), "ACCEPT");
});

Deno.test("nftables: an altered rule of the text changes the result of the walk", () => {
  const state = new PolicyState();
  const planner = plannerOf(state, "IPv4");
  setPod(state, "x/a", { address: "10.1.0.1" });
  setPolicy(state, "x/p", { podSelector: {} });
  planner.update();
  const table = renderedPolicyTable(planner.plan);
  const connection = { from: parseIpAddress("10.9.0.1"), to: parseIpAddress("10.1.0.1") };
  assertEquals(walkConnection(table, connection).verdict, "REJECT");
  table.elements.get("to-pod")?.clear();
  assertEquals(walkConnection(table, connection).verdict, "ACCEPT");
});
