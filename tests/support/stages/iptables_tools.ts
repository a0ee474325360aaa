/** The two variants of iptables in a namespace, as tests use them. */
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import type { Namespace } from "./netns.ts";
import { program, type Requirement } from "../requirement.ts";
import { TREES } from "../../../backends/iptables/base_chains.ts";
import { cidrContains, parseCidr, prefixLengthOf } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";

/** By table and chain, in the order of their names: the policy, then the rules in their order. */
type IptablesNormalForm = Readonly<Record<string, readonly string[]>>;

interface SavedChain {
  readonly table: string;
  readonly policy: string;
  readonly rules: string[];
}

/** By `table chain`. */
type SavedChains = ReadonlyMap<string, SavedChain>;

const SPECS = Object.values(TREES);

/** Of one family. Throws an Error when a rule of a tree is reached by nothing that it matches. */
function iptablesNormalForm(saved: string): IptablesNormalForm {
  const chains = readChains(saved);
  const form: Record<string, readonly string[]> = {};
  for (const key of [...chains.keys()].sort()) {
    const chain = chains.get(key);
    const name = key.slice(key.indexOf(" ") + 1);
    if (chain === undefined || isTreeChain(chain.table, name)) continue;
    const isRoot = SPECS.some(({ table, root }) => table === chain.table && root === name);
    const rules = isRoot ? inOrder(rulesBelow(chains, key)) : firewallFirst(chain.rules);
    form[key] = [`policy ${chain.policy}`, ...rules.map(withSortedWords)];
  }
  return form;
}

function readChains(saved: string): SavedChains {
  const chains = new Map<string, SavedChain>();
  let table = "";
  for (const line of saved.split("\n")) {
    const [word = "", name = "", ...rest] = line.split(" ");
    if (word.startsWith("*")) table = word.slice(1);
    else if (word.startsWith(":")) {
      chains.set(`${table} ${word.slice(1)}`, { table, policy: name, rules: [] });
    } else if (word === "-A") chains.get(`${table} ${name}`)?.rules.push(rest.join(" "));
  }
  return chains;
}

function isTreeChain(table: string, chain: string): boolean {
  return SPECS.some((spec) => spec.table === table && chain.startsWith(spec.base));
}

/** The rules of a chain, with the rules of its tree's chains in place of the jumps. */
function rulesBelow(chains: SavedChains, key: string): string[] {
  const { table, rules } = chains.get(key) ?? { table: "", rules: [] };
  const passed: string[] = [];
  return rules.flatMap((rule) => {
    const before = passed.find((jump) => covers(jump, rule));
    if (before !== undefined) {
      throw new Error(`Cannot reach '${rule}' of ${key}: '${before}' leads away before it`);
    }
    const [, child = ""] = / -[gj] (\S+)$/.exec(` ${rule}`) ?? [];
    if (!isTreeChain(table, child)) return [rule];
    passed.push(rule);
    const below = rulesBelow(chains, `${table} ${child}`);
    const unreachable = below.find((inner) => !covers(rule, inner));
    if (unreachable === undefined) return below;
    throw new Error(`Cannot reach '${unreachable}' of ${child}: '${rule}' leads there`);
  });
}

/** Returns the conditions of a rule on the packet, by option. Negated ones are left out. */
function conditionsOf(rule: string): ReadonlyMap<string, string> {
  const found = ` ${rule}`.matchAll(/(?<!!) (-[sdp]|--dport) (\S+)/g);
  return new Map([...found].map(([, option = "", value = ""]) => [option, value]));
}

/**
 * Whether every packet that `inner` matches also matches `outer`; a rule without conditions covers
 * nothing.
 */
function covers(outer: string, inner: string): boolean {
  const wanted = conditionsOf(outer);
  const found = conditionsOf(inner);
  return wanted.size > 0 && [...wanted].every(([option, value]) => {
    const other = found.get(option);
    return other !== undefined && contains(option, value, other);
  });
}

function contains(option: string, outer: string, inner: string): boolean {
  if (option === "-p") return outer === inner;
  if (option === "--dport") {
    const [from = 0, to = from] = outer.split(":").map(Number);
    const [first = 0, last = first] = inner.split(":").map(Number);
    return from <= first && last <= to;
  }
  const [address = ""] = inner.split("/");
  const range = parseCidr(outer);
  return prefixLengthOf(parseCidr(inner)) >= prefixLengthOf(range) &&
    cidrContains(range, parseIpAddress(address));
}

/**
 * Groups rules for different packets; rules for the same packets, and for all packets, keep their
 * order.
 */
function inOrder(rules: readonly string[]): string[] {
  const keyed = rules.map((rule) => {
    const conditions = conditionsOf(rule);
    const key = ["-d", "-p", "--dport"].map((option) => conditions.get(option) ?? "~").join(" ");
    return { rule, key };
  });
  return keyed.toSorted((a, b) => a.key < b.key ? -1 : a.key > b.key ? 1 : 0)
    .map(({ rule }) => rule);
}

/** The kubelet and kube-relay share a chain; the order depends on the first writer. */
function firewallFirst(rules: readonly string[]): string[] {
  const isFirewall = (rule: string) => rule === "-j KUBE-FIREWALL";
  return [...rules.filter(isFirewall), ...rules.filter((rule) => !isFirewall(rule))];
}

/** Matches apply in any order: kube-proxy writes its comments first, kube-relay last. */
function withSortedWords(rule: string): string {
  return rule.split(/ (?=! |(?<!! )-)/).sort().join(" ");
}

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
