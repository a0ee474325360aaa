/** The packet-flow table with real packets, through IPVS on the node of a small cluster. */
import { assertStringIncludes } from "@std/assert";
import { runPacketStage } from "../packet_flow/packet_stage.ts";
import { PACKET_FLOW_CASES } from "../packet_flow/cases.ts";
import { MODE_ADAPTATIONS } from "../packet_flow/mode_exceptions.ts";
import type { PacketFlowCase } from "../packet_flow/packet_flow_case.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { GUEST } from "./guest.ts";

const test = testNeeding("the packet-flow table through IPVS", [
  GUEST,
  ...netnsRequirements(),
  ...["conntrack", "ipvsadm", "ipset", "iptables", "ip6tables"].map(program),
]);

const SCENARIOS = [...new Set(PACKET_FLOW_CASES.map(({ scenario }) => scenario.name))];

/**
 * Everything is ten times slower here. Each row is sent in both families, by TCP in one and by UDP
 * in the other; rows of one protocol or family are sent as they are.
 */
function isSent({ family, protocol, scenario }: PacketFlowCase): boolean {
  const isOdd = SCENARIOS.indexOf(scenario.name) % 2 === 1;
  const isByTcp = (family === "IPv4") !== isOdd;
  return protocol !== (isByTcp ? "UDP" : "TCP");
}

test("packet flow with real packets through ipvs mode", async (t) => {
  await runPacketStage(t, {
    name: "ipvs",
    mode: "ipvs",
    only: isSent,
    adapt: MODE_ADAPTATIONS.ipvs,
    async check({ node }) {
      assertStringIncludes(await node.output("ipset", ["list", "-n"]), "KUBE-SERVED");
      assertStringIncludes(await node.output("ipvsadm", ["-S", "-n"]), " -m -w 1");
    },
  });
});
