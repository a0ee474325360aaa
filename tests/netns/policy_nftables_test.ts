/** The nftables data plane of NetworkPolicy in the kernel. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { createNftablesPolicyDataPlane } from "../../backends/policy/nftables/data_plane.ts";
import type { PolicyDataPlane } from "../../backends/policy/policy_data_plane.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { systemCommandRunner } from "../../lib/os/command_runner.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "../policy/case_addresses.ts";
import { clusterHistory, handleEvent } from "../policy/random_cluster.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../support/builders/policy_objects.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { isMissing, program } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
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
  "flush map TABLE to-pod",
  "delete element TABLE known { POD }",
  "add set TABLE other { type inet_service ; }",
  "add chain TABLE other\nadd rule TABLE other drop",
  "add table TABLE { flags dormant ; }",
];

const ignore = isMissing("NetworkPolicy by nftables in the kernel", [
  ...netnsRequirements(),
  program("nft"),
]);

async function startDataPlane(namespace: Namespace, family: IpFamily): Promise<PolicyDataPlane> {
  const inside = ["netns", "exec", namespace.name];
  const dataPlane = createNftablesPolicyDataPlane({
    clock: systemClock,
    commands: {
      run: (tool, args, options) =>
        systemCommandRunner.run("ip", [...inside, tool, ...args], options),
    },
    logger: new MemoryLogger(),
    random: () => 0,
  }, { family, syncPeriodMs: 60_000 });
  await dataPlane.start();
  return dataPlane;
}

Deno.test({
  name: "policy by nftables: changes by other programs are seen and repaired",
  ignore,
  fn: async () => {
    await using namespace = await Namespace.create("policy");
    for (const family of IP_FAMILIES) {
      await using dataPlane = await startDataPlane(namespace, family);
      const { addressOf, range } = caseAddresses(family);
      const table = `${family === "IPv4" ? "ip" : "ip6"} kube-relay-policy`;
      const state = new PolicyState();
      setPod(state, "x/a", { address: addressOf("x/a"), ports: { web: 80 } });
      setPod(state, "x/b", { address: addressOf("x/b") });
      setPolicy(state, "x/p", {
        podSelector: {},
        policyTypes: ["Ingress", "Egress"],
        ingress: [
          { from: [{ podSelector: {} }], ports: [{ port: 80 }, { port: 90, endPort: 95 }] },
          { from: [{ ipBlock: { cidr: family === "IPv4" ? "0.0.0.0/0" : "::/0" } }] },
        ],
        egress: [
          { to: [{ podSelector: {} }], ports: [{ port: "web" }] },
          { ports: [{ protocol: "UDP" }, { protocol: "SCTP", port: 7 }] },
          { to: [{ ipBlock: { cidr: range } }], ports: [{ protocol: "UDP" }] },
        ],
      });
      const planner = new PolicyPlanner(state, {
        ...IPV4_PLAN,
        family,
        deny: { action: "reject", log: { perMinute: 10, group: 100 } },
        closedRanges: [parseCidr(range)],
      });
      const changes = planner.update();
      await dataPlane.sync(planner.plan, changes);
      assertEquals(await dataPlane.compare(planner.plan), [], family);
      for (const text of ALTERATIONS) {
        const pod = addressOf("x/a");
        await loadNftables(
          namespace,
          `${text.replaceAll("TABLE", table).replaceAll("POD", pod)}\n`,
        );
        const { found, left } = await dataPlane.repair(planner.plan);
        assert(found.length > 0, text);
        assertEquals(left, [], `${text}: ${JSON.stringify(found)}`);
      }
    }
  },
});

Deno.test({
  name: "policy by nftables: after each change of a random history the kernel holds the plan",
  ignore,
  fn: async () => {
    await using namespace = await Namespace.create("policy");
    const seed = Date.now();
    for (const family of IP_FAMILIES) {
      for (const history of fc.sample(clusterHistory, { seed, numRuns: 4 })) {
        await using dataPlane = await startDataPlane(namespace, family);
        const state = new PolicyState();
        const planner = new PolicyPlanner(state, { ...IPV4_PLAN, family });
        for (const [index, event] of history.entries()) {
          handleEvent(state, event);
          const changes = planner.update();
          const { full, quarantined } = await dataPlane.sync(planner.plan, changes);
          const text = `seed ${seed}, ${family}, event ${index}`;
          assertEquals([full, quarantined], [index === 0, []], text);
        }
        assertEquals(await dataPlane.compare(planner.plan), [], `seed ${seed}, ${family}`);
      }
    }
  },
});
