/**
 * The packet-flow table with real packets through nftables mode.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import type { PacketFlowCase } from "../packet_flow/packet_flow_case.ts";
import { runPacketStage } from "../packet_flow/packet_stage.ts";
import type { PacketFlowAdaptation } from "../packet_flow/suite.ts";
import { ADDRESSES } from "../support/address_plan.ts";
import { netnsRequirements } from "../support/netns.ts";
import { isMissing, program } from "../support/requirement.ts";

const PLANS = [ADDRESSES.IPv4, ADDRESSES.IPv6];

const ADAPTATIONS: readonly PacketFlowAdaptation[] = [
  {
    reason:
      "without a word, node ports are on the first address of the node only, as in kube-proxy",
    cases: ({ to, scenario }: PacketFlowCase) =>
      scenario.settings?.nodePortAddresses === undefined &&
      PLANS.some(({ loopback, nodeSecond }) => to === loopback || to === nodeSecond),
    expect: { verdict: "UNCLAIMED", masquerade: false },
  },
];

Deno.test({
  name: "packet flow with real packets through nftables mode",
  ignore: isMissing("the packet-flow table through nftables", [
    ...netnsRequirements(),
    program("bash"),
    program("nft"),
  ]),
  async fn(t) {
    await runPacketStage(t, {
      name: "nftables",
      mode: "nftables",
      asUdp: true,
      adapt: ADAPTATIONS,
      async check({ node }) {
        const chains = await node.output("nft", ["list", "chains"]);
        const tables = [...chains.matchAll(/^table (\S+ \S+) \{/gm)].map(([, name]) => name);
        assertEquals(tables.sort(), ["ip kube-relay", "ip6 kube-relay"]);
        assert(!chains.includes("type filter"), "no hook that every packet passes");
      },
    });
  },
});
