/** The iptables data plane of NetworkPolicy in the kernel, in both variants of iptables. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { createIptablesPolicyDataPlane } from "../../backends/policy/iptables/data_plane.ts";
import type { PolicyDataPlane } from "../../backends/policy/policy_data_plane.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../lib/os/command_runner.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { caseAddresses } from "../policy/case_addresses.ts";
import { clusterHistory, handleEvent } from "../policy/random_cluster.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../support/builders/policy_objects.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { isMissing, program } from "../support/requirement.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { testPolicyOnTheWire } from "./policy_wire.ts";

const VARIANTS = ["nft", "legacy"] as const;
type Variant = typeof VARIANTS[number];

const PREFIXES = { IPv4: "iptables", IPv6: "ip6tables" } as const;

/** Leaves the kubelet's chain in the variant that must be chosen, before the first command. */
function withHint(
  commands: CommandRunner,
  { family, variant }: { readonly family: IpFamily; readonly variant: Variant },
): CommandRunner {
  const program = `${PREFIXES[family]}-${variant}-restore`;
  const stdin = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";
  let hint: Promise<unknown> | undefined;
  return {
    async run(...call) {
      hint ??= commands.run(program, ["--noflush"], { stdin });
      await hint;
      return await commands.run(...call);
    },
  };
}

async function restore(
  node: Namespace,
  { family, variant, text }: {
    readonly family: IpFamily;
    readonly variant: Variant;
    readonly text: string;
  },
): Promise<void> {
  const program = `${PREFIXES[family]}-${variant}-restore`;
  const args = ["netns", "exec", node.name, program, "--noflush"];
  const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin: text });
  assertEquals(code, 0, stderr);
}

/** Returns the objects of NetworkPolicy in a namespace. */
async function remains(node: Namespace): Promise<string> {
  const found = [await node.output("ipset", ["list", "-n"])];
  for (const family of IP_FAMILIES) {
    for (const variant of VARIANTS) {
      found.push(await node.output(`${PREFIXES[family]}-${variant}-save`, ["-t", "filter"]));
    }
  }
  return found.join("\n").split("\n").filter((line) => /KUBE-RELAY/.test(line)).join("\n");
}

for (const variant of VARIANTS) {
  testPolicyOnTheWire({
    name: `iptables-${variant}`,
    requirements: [program(`iptables-${variant}`), program("ipset")],
    make: (dependencies, options) => {
      const commands = withHint(dependencies.commands, { ...options, variant });
      return createIptablesPolicyDataPlane({ ...dependencies, commands }, options);
    },
    flush: async ({ cluster: { node } }) => {
      for (const family of IP_FAMILIES) {
        const text = "*filter\n-F\n-X\nCOMMIT\n";
        await restore(node, { family, variant, text });
      }
    },
    remains: ({ cluster: { node } }) => remains(node),
  });
}

/** Changes by other programs, as lines of table filter. */
const ALTERATIONS: readonly (readonly string[])[] = [
  ["-D FORWARD -j KUBE-RELAY-POLICY"],
  ["-I FORWARD -j ACCEPT"],
  ["-A FORWARD -j KUBE-RELAY-POLICY"],
  ["-F KUBE-RELAY-POLICY"],
  ["-I KUBE-RELAY-POLICY-DENY -j ACCEPT"],
  ["-I KUBE-RELAY-POLICY-NO-INGRESS -j RETURN"],
  ["-F KUBE-RELAY-POLICY-EGRESS"],
  [":KUBE-RELAY-aaaaaaaaaaaaaaaa - [0:0]"],
];

const ignore = isMissing("NetworkPolicy by iptables in the kernel", [
  ...netnsRequirements(),
  program("iptables-legacy"),
  program("ipset"),
]);

async function startDataPlane(
  namespace: Namespace,
  { family, variant }: { readonly family: IpFamily; readonly variant: Variant },
): Promise<PolicyDataPlane> {
  const inside = ["netns", "exec", namespace.name];
  const commands: CommandRunner = {
    run: (tool, args, options) =>
      systemCommandRunner.run("ip", [...inside, tool, ...args], options),
  };
  const dataPlane = createIptablesPolicyDataPlane({
    clock: systemClock,
    commands: withHint(commands, { family, variant }),
    logger: new MemoryLogger(),
    random: () => 0,
  }, { family, syncPeriodMs: 60_000 });
  await dataPlane.start();
  return dataPlane;
}

for (const variant of VARIANTS) {
  Deno.test({
    name: `policy by iptables-${variant}: changes by other programs are seen and repaired`,
    ignore,
    fn: async () => {
      await using namespace = await Namespace.create("policy");
      for (const family of IP_FAMILIES) {
        await using dataPlane = await startDataPlane(namespace, { family, variant });
        const { addressOf, range } = caseAddresses(family);
        const state = new PolicyState();
        setPod(state, "x/a", { address: addressOf("x/a"), ports: { web: 80 } });
        setPod(state, "x/b", { address: addressOf("x/b") });
        setPolicy(state, "x/p", {
          podSelector: {},
          policyTypes: ["Ingress", "Egress"],
          ingress: [
            { from: [{ podSelector: {} }], ports: [{ port: 80 }, { port: 90, endPort: 95 }] },
            { from: [{ ipBlock: { cidr: family === "IPv4" ? "0.0.0.0/0" : "::/0" } }] },
            { ports: Array.from({ length: 20 }, (_, index) => ({ port: 2 * index + 1 })) },
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
          deny: { action: "reject", log: { perMinute: 120, group: 100 } },
          closedRanges: [parseCidr(range)],
        });
        const changes = planner.update();
        await dataPlane.sync(planner.plan, changes);
        assertEquals(await dataPlane.compare(planner.plan), [], family);
        for (const lines of ALTERATIONS) {
          const text = ["*filter", ...lines, "COMMIT", ""].join("\n");
          await restore(namespace, { family, variant, text });
          const { found, left } = await dataPlane.repair(planner.plan);
          assert(found.length > 0, text);
          assertEquals(left, [], `${text}: ${JSON.stringify(found)}`);
        }
        for (const set of ["EGRESS", "KNOWN"]) {
          const name = `KUBE-RELAY-${family === "IPv4" ? 4 : 6}-${set}`;
          await namespace.output("ipset", ["flush", name]);
          const { found, left } = await dataPlane.repair(planner.plan);
          assertEquals([found.length, left], [2, []]);
        }
        assertEquals((await dataPlane.cleanup()).failed, []);
      }
      assertEquals(await remains(namespace), "");
    },
  });

  Deno.test({
    name:
      `policy by iptables-${variant}: after each change of a random history the kernel holds the plan`,
    ignore,
    fn: async () => {
      const seed = Date.now();
      for (const family of IP_FAMILIES) {
        for (const history of fc.sample(clusterHistory, { seed, numRuns: 3 })) {
          await using namespace = await Namespace.create("policy");
          await using dataPlane = await startDataPlane(namespace, { family, variant });
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
}
