/**
 * The packet-flow table with real packets, through IPVS on the node of a small cluster.
 *
 * @module
 */
import { assertStringIncludes } from "@std/assert";
import { runPacketStage } from "../packet_flow/packet_stage.ts";
import { PACKET_FLOW_CASES } from "../packet_flow/cases.ts";
import type { PacketFlowCase } from "../packet_flow/packet_flow_case.ts";
import type { PacketFlowAdaptation } from "../packet_flow/suite.ts";
import { ADDRESSES } from "../support/address_plan.ts";
import { netnsRequirements } from "../support/netns.ts";
import { isMissing, program } from "../support/requirement.ts";
import { GUEST } from "./guest.ts";

const ignore = isMissing("the packet-flow table through IPVS", [
  GUEST,
  ...netnsRequirements(),
  ...["ipvsadm", "ipset", "iptables", "ip6tables"].map(program),
]);

const LOOPBACKS: readonly string[] = [ADDRESSES.IPv4.loopback, ADDRESSES.IPv6.loopback];

/** Whether both policies are Local. */
function isLocalTwice({ scenario: { services: [service] } }: PacketFlowCase): boolean {
  const { internalTrafficPolicy, externalTrafficPolicy } = service?.spec ?? {};
  return internalTrafficPolicy === "Local" && externalTrafficPolicy === "Local";
}

/** Whether the packet is for endpoints of the other node alone. */
function isElsewhere({ family, verdict }: PacketFlowCase): boolean {
  const { remotePods } = ADDRESSES[family];
  return typeof verdict !== "string" &&
    verdict.every((endpoint) => remotePods.some((pod) => endpoint.includes(pod)));
}

const ADAPTATIONS: readonly PacketFlowAdaptation[] = [
  {
    reason: "IPVS leaves loopback addresses alone",
    cases: ({ to }) => LOOPBACKS.includes(to),
    expect: { verdict: "UNCLAIMED", masquerade: false },
  },
  {
    reason: "where both policies are Local no virtual server has the endpoints of other nodes",
    cases: (packet) => isLocalTwice(packet) && isElsewhere(packet),
    expect: { verdict: "DROP", masquerade: false },
  },
];

const SCENARIOS = [...new Set(PACKET_FLOW_CASES.map(({ scenario }) => scenario.name))];

/**
 * Everything is ten times slower here: one half of the scenarios is sent by TCP in IPv4, the other half
 * by UDP in IPv6, and what is of one protocol or family alone as it is.
 */
function isSent({ family, protocol, scenario }: PacketFlowCase): boolean {
  const isOdd = SCENARIOS.indexOf(scenario.name) % 2 === 1;
  return family === (isOdd ? "IPv6" : "IPv4") && protocol !== (isOdd ? "TCP" : "UDP");
}

Deno.test({
  name: "packet flow with real packets through ipvs mode",
  ignore,
  async fn(t) {
    await runPacketStage(t, {
      name: "ipvs",
      mode: "ipvs",
      only: isSent,
      adapt: ADAPTATIONS,
      async check({ node }) {
        assertStringIncludes(await node.output("ipset", ["list", "-n"]), "KUBE-SERVED");
        assertStringIncludes(await node.output("ipvsadm", ["-S", "-n"]), " -m -w 1");
      },
    });
  },
});
