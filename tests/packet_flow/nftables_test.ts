/** The packet-flow table, traced through the text of nftables mode. */
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { PACKET_FLOW_CASES } from "./cases.ts";
import { executeOnNft, nftScenarioTable } from "./nft_executor.ts";
import type { PacketFlowCase } from "./packet_flow_case.ts";
import { type PacketFlowAdaptation, runPacketFlowSuite } from "./suite.ts";
import { asUdp, inOtherFamily } from "./variants.ts";

const isLoopbackV6 = ({ to }: PacketFlowCase) => to === ADDRESSES.IPv6.loopback;
const isUnallocated = ({ to, scenario }: PacketFlowCase) =>
  to === "172.30.0.99" || to === "fd00:172:30::99" ||
  scenario.name === "a Service of another proxy";
const ADAPTATIONS: readonly PacketFlowAdaptation[] = [
  {
    reason: "IPv6 has no route_localnet: packets to ::1 stay on loopback",
    cases: isLoopbackV6,
    expect: { verdict: "UNCLAIMED", masquerade: false },
  },
  {
    reason: "unserved addresses of the Service range are dropped, as in kube-proxy",
    cases: isUnallocated,
    expect: { verdict: "DROP" },
  },
];

for (
  const [name, cases] of [
    ["nftables", PACKET_FLOW_CASES],
    ["nftables, other family", inOtherFamily(PACKET_FLOW_CASES)],
    ["nftables, UDP", asUdp(PACKET_FLOW_CASES)],
    ["nftables, UDP, other family", inOtherFamily(asUdp(PACKET_FLOW_CASES))],
  ] as const
) {
  runPacketFlowSuite({
    name,
    cases,
    execute: (packet) => executeOnNft(nftScenarioTable(packet.scenario, packet.family), packet),
    adapt: ADAPTATIONS.filter((adaptation) =>
      typeof adaptation.cases === "function" && cases.some(adaptation.cases)
    ),
  });
}
