/** The nftables data plane of NetworkPolicy in the kernel. */
import { createNftablesPolicyDataPlane } from "../../backends/policy/nftables/data_plane.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import { testPolicyOnTheWire } from "./policy_wire.ts";

testPolicyOnTheWire({
  name: "nftables",
  requirements: [],
  make: createNftablesPolicyDataPlane,
  flush: ({ cluster: { node } }) => loadNftables(node, "flush ruleset\n"),
  remains: async ({ cluster: { node } }) => {
    const tables = await node.output("nft", ["list", "tables"]);
    return tables.split("\n").filter((line) => line.includes("policy")).join();
  },
});
