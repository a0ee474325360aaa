/** The nftables data plane of NetworkPolicy in the kernel. */
import { POLICY_BACKENDS } from "../../backends/policy/mod.ts";
import { program } from "../support/requirement.ts";
import type { Namespace } from "../support/stages/netns.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import { testPolicyAttacks } from "./policy_attacks.ts";
import { testPolicyInTheKernel } from "./policy_kernel.ts";
import { testPolicyOnTheWire } from "./policy_wire.ts";

const TESTED = {
  name: "nftables",
  requirements: [program("nft")],
  make: POLICY_BACKENDS.nftables,
};

async function remains(node: Namespace): Promise<string> {
  const tables = await node.output("nft", ["list", "tables"]);
  return tables.split("\n").filter((line) => line.includes("policy")).join();
}

/**
 * Changes by other programs, as input of nft: `TABLE` is the table of kube-relay, `POD` the address
 * of a pod.
 */
const ALTERATIONS: readonly string[] = [
  "delete table TABLE",
  "flush table TABLE",
  "flush chain TABLE ingress\ndelete chain TABLE ingress",
  "flush chain TABLE ingress\ndelete chain TABLE ingress\n" +
  "add chain TABLE ingress { type filter hook forward priority 7 ; }\n" +
  "add rule TABLE ingress accept",
  "insert rule TABLE deny accept",
  "insert rule TABLE egress counter accept",
  "chain TABLE egress { policy drop ; }",
  "flush chain TABLE shared-link-ingress",
  "flush chain TABLE deny-egress",
  "flush map TABLE to-pod",
  "delete element TABLE known { POD }",
  "add set TABLE other { type inet_service ; }",
  "add chain TABLE other\nadd rule TABLE other drop",
  "add table TABLE { flags dormant ; }",
];

testPolicyOnTheWire({
  ...TESTED,
  remains: ({ cluster: { node } }) => remains(node),
});

testPolicyInTheKernel({
  ...TESTED,
  remains,
  alter: async ({ namespace, family, pod, repair }) => {
    const table = `${family === "IPv4" ? "ip" : "ip6"} kube-relay-policy`;
    for (const each of ALTERATIONS) {
      const text = each.replaceAll("TABLE", table).replaceAll("POD", pod);
      await loadNftables(namespace, `${text}\n`);
      await repair(text);
    }
  },
});

testPolicyAttacks(TESTED);
