/**
 * The spelling of what nft prints in other words than it was given. Pure.
 *
 * @module
 */
import { withUndottedAddresses } from "../undotted_address.ts";
import type { NftContainer } from "./nft_objects.ts";

/** Converts a printed key or value to its written form. */
type Spelling = (text: string) => string;

/**
 * The names of protocols for machines without a list of protocols, on which the tool prints their
 * numbers.
 */
const PROTOCOL_NAMES: Readonly<Record<string, string>> = { 6: "tcp", 17: "udp", 132: "sctp" };

/** Names the protocols in a printed rule, also those of a set within it. */
export function withProtocolNames(rule: string): string {
  return rule.replaceAll(
    /\b(?:l4proto|protocol|nexthdr) (?:\d+\b|\{ [\d, ]+ \})/g,
    (text) => text.replaceAll(/(?<= )\d+/g, (number) => PROTOCOL_NAMES[number] ?? number),
  );
}

/** The printed forms by type. Other types are printed as they are written. */
const SPELLINGS: ReadonlyMap<string, Spelling> = new Map([
  ["classid", (text: string) => classidText(text) ?? text],
  ["inet_proto", (text: string) => PROTOCOL_NAMES[text] ?? text],
  ["ipv6_addr", withUndottedAddresses],
]);

/** Returns the spelling of a key or value of these types, e.g. `ipv4_addr . inet_proto`. */
export function spellingOf(types: string): Spelling {
  const parts = types.split(" . ").flatMap((type, index) => {
    const spell = SPELLINGS.get(type);
    return spell ? [{ index, spell }] : [];
  });
  if (parts.length === 0) return (text) => text;
  return (text) => {
    const words = text.split(" . ");
    for (const { index, spell } of parts) {
      const word = words[index];
      if (word !== undefined) words[index] = spell(word);
    }
    return words.join(" . ");
  };
}

/**
 * The priority of a packet as it is written, e.g. `0x80000001`. It is printed as a handle of traffic
 * control: two halves of 16 bits, of which an empty one is 0, or a word for one. `undefined` = the
 * text is none.
 */
export function classidText(text: string): string | undefined {
  if (text === "root") return "0xffffffff";
  const [, major, minor] = /^([0-9a-f]{0,4}):([0-9a-f]{0,4})$/.exec(text) ?? [];
  if (major === undefined || minor === undefined) return undefined;
  const number = parseInt(major || "0", 16) * 0x1_0000 + parseInt(minor || "0", 16);
  return `0x${number.toString(16)}`;
}

/**
 * Whether a printed set or map is declared with the same types and time-out. Tools of other
 * versions print more properties, or expressions in place of types.
 */
export function isDeclaredAs({ kind, declaration }: NftContainer, print: string): boolean {
  const wanted = `${kind}\n${declaration.replaceAll(" ; ", "\n")}`;
  return !/^type /m.test(print) || decidingLines(print) === decidingLines(wanted);
}

function decidingLines(print: string): string {
  return print.split("\n").filter((line) => DECIDING.test(line)).sort().join("\n");
}

const DECIDING = /^(map|set|type .*|flags .*|timeout .*|counter)$/;

/** Priorities with a name in nft. Those of families other than `ip` and `ip6` are left out. */
const PRIORITIES: Readonly<Record<string, number>> = {
  raw: -300,
  mangle: -150,
  dstnat: -100,
  filter: 0,
  security: 50,
  srcnat: 100,
};

/**
 * Returns the hook of a chain in one spelling: `type nat hook prerouting priority dstnat + 10;
 * policy accept;` becomes `type nat hook prerouting priority -90 policy accept`.
 */
export function normalHook(text: string): string {
  const [, head = "", word = "", sign = "", offset = "", policy = "accept"] =
    /^(type \S+ hook \S+(?: device \S+)?) priority (-?\w+)(?: ([+-]) (\d+))?;?(?: policy (\w+);?)?/
      .exec(text.trim()) ?? [];
  if (head === "") return text.trim();
  const base = PRIORITIES[word] ?? Number(word);
  const priority = base + Number(`${sign}${offset || 0}`);
  return `${head} priority ${priority} policy ${policy}`;
}

/** Splits the print of a chain into its hook, if it has one, and its rules. */
export function readChainPrint(
  print: string,
): { readonly hook: string | undefined; readonly rules: readonly string[] } {
  const lines = print.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  const [first] = lines;
  if (first === undefined || !/^type \S+ hook /.test(first)) {
    return { hook: undefined, rules: lines };
  }
  return { hook: normalHook(first), rules: lines.slice(1) };
}
