/**
 * The text of `iptables-save` in a form that two states of a node can be compared in: what is left
 * out or sorted has no meaning for a packet. Trees of chains, whose shape depends on their history,
 * are one list of rules each; that every rule is reached by what it matches is checked on the way.
 *
 * @module
 */
import { TREES } from "../../../backends/iptables/base_chains.ts";
import { cidrContains, parseCidr, prefixLengthOf } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";

/** By table and chain, in the order of their names: the policy, then the rules in their order. */
export type IptablesNormalForm = Readonly<Record<string, readonly string[]>>;

interface SavedChain {
  readonly table: string;
  readonly policy: string;
  readonly rules: string[];
}

/** By `table chain`. */
type SavedChains = ReadonlyMap<string, SavedChain>;

const SPECS = Object.values(TREES);

/** Of one family. Throws an Error when a rule of a tree is reached by nothing that it matches. */
export function iptablesNormalForm(saved: string): IptablesNormalForm {
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
