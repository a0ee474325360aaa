import { assert, assertEquals } from "@std/assert";
import { PACKET_FLOW_CASES } from "./cases.ts";
import { executeOnPlan } from "./plan_executor.ts";
import { planScenario } from "./plan_scenario.ts";
import { runPacketFlowSuite } from "./suite.ts";
import { asUdp, inOtherFamily } from "./variants.ts";

for (
  const [name, cases] of [
    ["plan", PACKET_FLOW_CASES],
    ["plan, other family", inOtherFamily(PACKET_FLOW_CASES)],
    ["plan, UDP", asUdp(PACKET_FLOW_CASES)],
    ["plan, UDP, other family", inOtherFamily(asUdp(PACKET_FLOW_CASES))],
  ] as const
) {
  runPacketFlowSuite({
    name,
    cases,
    execute: (packet) => executeOnPlan(planScenario(packet.scenario, packet.family), packet),
  });
}

Deno.test("PACKET_FLOW_CASES names every row once", () => {
  const names = PACKET_FLOW_CASES.map(({ name }) => name);
  assertEquals(names.filter((name, index) => names.indexOf(name) !== index), []);
  assert(names.length >= 40);
});
