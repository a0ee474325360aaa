/** The packet-flow table, traced through the text of iptables mode. */
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { PACKET_FLOW_CASES } from "./cases.ts";
import { executeOnIptables, scenarioRules } from "./iptables_executor.ts";
import type { PacketFlowCase } from "./packet_flow_case.ts";
import { type PacketFlowAdaptation, runPacketFlowSuite } from "./suite.ts";
import { asUdp, inOtherFamily } from "./variants.ts";

const isLoopbackV6 = ({ to }: PacketFlowCase) => to === ADDRESSES.IPv6.loopback;
const NO_LOOPBACK_V6: PacketFlowAdaptation = {
  reason: "IPv6 has no route_localnet: packets to ::1 stay on loopback",
  cases: isLoopbackV6,
  expect: { verdict: "UNCLAIMED", masquerade: false },
};

for (
  const [name, cases] of [
    ["iptables", PACKET_FLOW_CASES],
    ["iptables, other family", inOtherFamily(PACKET_FLOW_CASES)],
    ["iptables, UDP", asUdp(PACKET_FLOW_CASES)],
    ["iptables, UDP, other family", inOtherFamily(asUdp(PACKET_FLOW_CASES))],
  ] as const
) {
  const adapt = cases.some(isLoopbackV6) ? [NO_LOOPBACK_V6] : [];
  const choices = [[name, {}], [`${name}, each Service marks`, {
    masqueradesRanges: false,
  }]] as const;
  for (const [name, choice] of choices) {
    runPacketFlowSuite({
      name,
      cases,
      execute({ scenario, family, ...packet }) {
        const rules = scenarioRules(scenario, family, choice);
        return executeOnIptables(rules, { ...packet, scenario, family });
      },
      adapt,
    });
  }
}
