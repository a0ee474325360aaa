/** The packet-flow table, walked through the text of ipvs mode. */
import { PACKET_FLOW_CASES } from "./cases.ts";
import { executeOnIpvs, ipvsScenarioKernel } from "./ipvs_executor.ts";
import { MODE_ADAPTATIONS } from "./mode_exceptions.ts";
import { runPacketFlowSuite } from "./suite.ts";
import { asUdp, inOtherFamily } from "./variants.ts";

for (
  const [name, cases] of [
    ["ipvs", PACKET_FLOW_CASES],
    ["ipvs, other family", inOtherFamily(PACKET_FLOW_CASES)],
    ["ipvs, UDP", asUdp(PACKET_FLOW_CASES)],
    ["ipvs, UDP, other family", inOtherFamily(asUdp(PACKET_FLOW_CASES))],
  ] as const
) {
  runPacketFlowSuite({
    name,
    cases,
    execute: (packet) => executeOnIpvs(ipvsScenarioKernel(packet.scenario, packet.family), packet),
    adapt: MODE_ADAPTATIONS.ipvs.filter(({ cases: concerns }) =>
      typeof concerns === "function" && cases.some(concerns)
    ),
  });
}
