/**
 * The packet-flow table with real packets, through kube-relay on the node of a small cluster.
 *
 * @module
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import type { PacketFlowCase } from "../packet_flow/packet_flow_case.ts";
import { runPacketStage } from "../packet_flow/packet_stage.ts";
import type { PacketFlowAdaptation } from "../packet_flow/suite.ts";
import { ADDRESSES } from "../support/address_plan.ts";
import {
  IPTABLES_VARIANTS,
  iptablesRequirements,
  leaveKubeletHint,
} from "../support/iptables_tools.ts";
import { netnsRequirements } from "../support/netns.ts";
import { isMissing, program } from "../support/requirement.ts";

const NEEDED = [...netnsRequirements(), program("bash")];
const ignore = isMissing("the packet-flow table with real packets", NEEDED);

const isDropped = ({ verdict }: PacketFlowCase) => verdict === "DROP";

/** Whether the address has a socket: some client has an endpoint there, though not this one. */
function isSharedWithOthers({ scenario, to }: PacketFlowCase): boolean {
  const [service] = scenario.services;
  const isClusterIp = [service?.spec.clusterIP, ...service?.spec.clusterIPs ?? []].includes(to);
  return !isClusterIp || service?.spec.internalTrafficPolicy !== "Local";
}

const USERSPACE: readonly PacketFlowAdaptation[] = [
  {
    reason: "every connection to an endpoint is made by the node",
    cases: () => true,
    expect: { masquerade: true },
  },
  {
    reason: "a TCP connection cannot be left unanswered without a rule: it is closed at once",
    cases: (packet) => isDropped(packet) && packet.protocol === "TCP",
    expect: { verdict: "REJECT" },
  },
  {
    reason: "where no client has an endpoint there is no socket, and the kernel refuses",
    cases: (packet) =>
      isDropped(packet) && packet.protocol === "UDP" && !isSharedWithOthers(packet),
    expect: { verdict: "REJECT" },
  },
];

const IPTABLES: readonly PacketFlowAdaptation[] = [
  {
    reason: "IPv6 has no route_localnet: what goes to ::1 stays there",
    cases: ({ to }) => to === ADDRESSES.IPv6.loopback,
    expect: { verdict: "UNCLAIMED", masquerade: false },
  },
];

Deno.test({
  name: "packet flow with real packets through userspace mode",
  ignore,
  async fn(t) {
    await runPacketStage(t, { name: "userspace", mode: "userspace", adapt: USERSPACE });
  },
});

for (const variant of IPTABLES_VARIANTS) {
  Deno.test({
    name: `packet flow with real packets through iptables mode (${variant})`,
    ignore: isMissing(`the packet-flow table through iptables-${variant}`, [
      ...NEEDED,
      ...iptablesRequirements(variant),
    ]),
    async fn(t) {
      await runPacketStage(t, {
        name: `iptables (${variant})`,
        mode: "iptables",
        // Beyond the tools, nothing depends on the variant.
        asUdp: variant === "nft",
        adapt: IPTABLES,
        prepare: ({ node }) => leaveKubeletHint(node, variant),
        async check({ node }) {
          for (const used of IPTABLES_VARIANTS) {
            const rules = await node.output(`iptables-${used}-save`, []);
            if (used === variant) assertStringIncludes(rules, "-j KUBE-SERVICES");
            else assertEquals(rules.includes("-j KUBE-SERVICES"), false, rules);
          }
        },
      });
    },
  });
}
