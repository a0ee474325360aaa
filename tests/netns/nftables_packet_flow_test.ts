/** The packet-flow table with real packets through nftables mode. */
import { assertEquals } from "@std/assert";
import { MODE_ADAPTATIONS } from "../packet_flow/mode_exceptions.ts";
import { runPacketStage } from "../packet_flow/packet_stage.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { program, testNeeding } from "../support/requirement.ts";

const test = testNeeding("the packet-flow table through nftables", [
  ...netnsRequirements(),
  ...["bash", "conntrack", "nft"].map(program),
]);
test("packet flow with real packets through nftables mode", async (t) => {
  await runPacketStage(t, {
    name: "nftables",
    mode: "nftables",
    asUdp: true,
    adapt: MODE_ADAPTATIONS.nftables,
    async check({ node }) {
      const chains = await node.output("nft", ["list", "chains"]);
      const tables = [...chains.matchAll(/^table (\S+ \S+) \{/gm)].map(([, name]) => name);
      assertEquals(tables.sort(), ["ip kube-relay", "ip6 kube-relay"]);
      // The last scenario asks for node ports on 127.0.0.1, which takes a guard.
      const filters = [...chains.matchAll(/^\tchain (\S+) \{\n\t\ttype filter/gm)];
      assertEquals(
        filters.map(([, name]) => name),
        ["loopback-guard"],
        "no other hook that every packet passes",
      );
    },
  });
});
