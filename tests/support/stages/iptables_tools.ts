/**
 * The two variants of iptables in a namespace, as tests use them.
 *
 * @module
 */
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { type IptablesNormalForm, iptablesNormalForm } from "../texts/iptables_normal_form.ts";
import type { Namespace } from "./netns.ts";
import { program, type Requirement } from "../requirement.ts";

/** The kernel's set of tables on which a tool works. */
export type IptablesVariant = "nft" | "legacy";

/** Both. */
export const IPTABLES_VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];

/** The programs of the two families. */
export const IPTABLES_PREFIXES = ["iptables", "ip6tables"] as const;

/**
 * A foreign rule in each built-in chain, which makes kube-relay write to it too. And a rule like a
 * CNI plugin's, which needs conntrack: when the last such rule is removed, the kernel forgets the
 * translation of open connections.
 */
const FOREIGN = `*mangle
-A PREROUTING -m mark --mark 0x77 -j ACCEPT
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A FORWARD -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
-A POSTROUTING -m mark --mark 0x77 -j ACCEPT
COMMIT
*filter
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A FORWARD -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
COMMIT
*nat
-A PREROUTING -m mark --mark 0x77 -j ACCEPT
-A INPUT -m mark --mark 0x77 -j ACCEPT
-A OUTPUT -m mark --mark 0x77 -j ACCEPT
-A POSTROUTING -m mark --mark 0x77 -j ACCEPT
-A POSTROUTING -m mark --mark 0x78 -j MASQUERADE
COMMIT
`;

const HINT = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n";

/** Returns the requirements of a variant's tests besides root, for `isMissing()`. */
export function iptablesRequirements(variant: IptablesVariant): Requirement[] {
  const programs = IPTABLES_PREFIXES.map((prefix) => program(`${prefix}-${variant}`));
  if (programs.some(([, met]) => !met)) return programs;
  return [...programs, [`a kernel with tables for iptables-${variant}`, hasTables(variant)]];
}

/** Kernels of today may be built without the tables of iptables-legacy. */
function hasTables(variant: IptablesVariant): boolean {
  return IPTABLES_PREFIXES.every((prefix) => {
    const args = ["-n", `${prefix}-${variant}`, "-w", "-t", "nat", "-S"];
    return new Deno.Command("unshare", { args, stderr: "null" }).outputSync().success;
  });
}

/** Makes a node's choice of a variant, as the kubelet does: by a chain that it leaves there. */
export async function leaveKubeletHint(node: Namespace, variant: IptablesVariant): Promise<void> {
  for (const prefix of IPTABLES_PREFIXES) await restoreRules(node, `${prefix}-${variant}`, HINT);
}

/** Adds rules, given as input of the tool's `-restore`. Throws when they are refused. */
export async function restoreRules(
  node: Namespace,
  tool: string,
  stdin: string,
  flags: readonly string[] = ["--noflush"],
): Promise<void> {
  const args = ["netns", "exec", node.name, `${tool}-restore`, "-w", "5", ...flags];
  const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
  if (code !== 0) throw new Error(`Cannot load rules with ${tool}: ${stderr}`);
}

/** Adds foreign rules to both families. */
export async function addForeignRules(node: Namespace, variant: IptablesVariant): Promise<void> {
  for (const prefix of IPTABLES_PREFIXES) {
    await restoreRules(node, `${prefix}-${variant}`, FOREIGN);
  }
}

/** All rules of both families as text, without counters and comments. */
export async function savedRules(node: Namespace, variant: IptablesVariant): Promise<string> {
  const texts = [];
  for (const prefix of IPTABLES_PREFIXES) {
    texts.push(await node.output(`${prefix}-${variant}-save`, []));
  }
  return texts.join("").split("\n").filter((line) => !line.startsWith("#")).join("\n")
    .replaceAll(/\[\d+:\d+\]/g, "[0:0]");
}

/** All rules of both families, to be compared with those of another time or node. */
export async function ruleState(
  node: Namespace,
  variant: IptablesVariant,
): Promise<Record<string, IptablesNormalForm>> {
  const state: Record<string, IptablesNormalForm> = {};
  for (const prefix of IPTABLES_PREFIXES) {
    state[prefix] = iptablesNormalForm(await node.output(`${prefix}-${variant}-save`, []));
  }
  return state;
}
