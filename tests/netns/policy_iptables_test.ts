/** The iptables data plane of NetworkPolicy in the kernel, in both variants of iptables. */
import { assertEquals } from "@std/assert";
import { POLICY_BACKENDS } from "../../backends/policy/mod.ts";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import { type CommandRunner, systemCommandRunner } from "../../lib/os/command_runner.ts";
import { program } from "../support/requirement.ts";
import type { Namespace } from "../support/stages/netns.ts";
import type { PolicyDataPlaneFactory } from "../support/stages/policy_scene.ts";
import { testPolicyAttacks } from "./policy_attacks.ts";
import { type AlteredPlace, testPolicyInTheKernel } from "./policy_kernel.ts";
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

/** Changes by other programs, as lines of table filter. */
const ALTERATIONS: readonly (readonly string[])[] = [
  ["-D FORWARD -j KUBE-RELAY-POLICY"],
  ["-I FORWARD -j ACCEPT"],
  ["-A FORWARD -j KUBE-RELAY-POLICY"],
  ["-F KUBE-RELAY-POLICY"],
  ["-I KUBE-RELAY-POLICY-DENY -j ACCEPT"],
  ["-I KUBE-RELAY-POLICY-NO-INGRESS -j RETURN"],
  ["-F KUBE-RELAY-POLICY-EGRESS"],
  ["-F KUBE-RELAY-POLICY-LINK-IN"],
  ["-F KUBE-RELAY-POLICY-DENY-OUT"],
  [":KUBE-RELAY-aaaaaaaaaaaaaaaa - [0:0]"],
];

async function alter(
  variant: Variant,
  { namespace, family, repair }: AlteredPlace,
): Promise<void> {
  for (const lines of ALTERATIONS) {
    const text = ["*filter", ...lines, "COMMIT", ""].join("\n");
    await restore(namespace, { family, variant, text });
    await repair(text);
  }
  for (const set of ["EGRESS", "KNOWN"]) {
    const name = `KUBE-RELAY-${family === "IPv4" ? 4 : 6}-${set}`;
    await namespace.output("ipset", ["flush", name]);
    assertEquals(await repair(`flush of ${name}`), 2);
  }
  // What is an exception becomes a part of the set.
  const own = `KUBE-RELAY-${family === "IPv4" ? 4 : 6}P-`;
  const exceptions = (await namespace.output("ipset", ["save"])).split("\n")
    .filter((line) => line.startsWith(`add ${own}`) && line.endsWith(" nomatch"));
  assertEquals(exceptions.length, 1);
  const [, set = "", block = ""] = exceptions[0]!.split(" ");
  await namespace.output("ipset", ["add", set, block, "-exist"]);
  assertEquals(await repair(`${block} of ${set}`), 1);
}

for (const variant of VARIANTS) {
  const name = `iptables-${variant}`;
  const requirements = [program(name), program("ipset")];
  const make: PolicyDataPlaneFactory = (dependencies, options) => {
    const commands = withHint(dependencies.commands, { ...options, variant });
    return POLICY_BACKENDS.iptables({ ...dependencies, commands }, options);
  };
  testPolicyOnTheWire({
    ...{ name, requirements, make },
    remains: ({ cluster: { node } }) => remains(node),
  });
  testPolicyAttacks({ name, requirements, make });
  testPolicyInTheKernel({
    ...{ name, requirements, make, remains },
    alter: (place) => alter(variant, place),
  });
}
