/** The packet-flow table with real packets, through kube-relay on the node of a small cluster. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { MODE_ADAPTATIONS } from "../packet_flow/mode_exceptions.ts";
import { runPacketStage } from "../packet_flow/packet_stage.ts";
import {
  IPTABLES_VARIANTS,
  iptablesRequirements,
  leaveKubeletHint,
} from "../support/stages/iptables_tools.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { isMissing, program, testNeeding } from "../support/requirement.ts";

const RANGES = `--service-cidr=${ADDRESSES.IPv4.serviceCidr},${ADDRESSES.IPv6.serviceCidr}`;
const NEEDED = [...netnsRequirements(), program("bash")];
const test = testNeeding("the packet-flow table with real packets", NEEDED);

test("packet flow with real packets through userspace mode", async (t) => {
  await runPacketStage(t, {
    name: "userspace",
    mode: "userspace",
    adapt: MODE_ADAPTATIONS.userspace,
  });
});

for (const variant of IPTABLES_VARIANTS) {
  Deno.test({
    name: `packet flow with real packets through iptables mode (${variant})`,
    ignore: isMissing(`the packet-flow table through iptables-${variant}`, [
      ...NEEDED,
      program("conntrack"),
      ...iptablesRequirements(variant),
    ]),
    async fn(t) {
      await runPacketStage(t, {
        name: `iptables (${variant})`,
        mode: "iptables",
        // In the other variant, no range of cluster IPs is known, and each Service marks its packets.
        flags: variant === "legacy" ? [RANGES] : [],
        // Beyond the tools, nothing depends on the variant.
        asUdp: variant === "nft",
        adapt: MODE_ADAPTATIONS.iptables,
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

const nftTest = testNeeding("the packet-flow table through nftables", [
  ...NEEDED,
  ...["conntrack", "nft"].map(program),
]);

nftTest("packet flow with real packets through nftables mode", async (t) => {
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
