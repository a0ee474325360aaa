/**
 * Rules and chains as values, and as the lines that `iptables-restore` reads. Pure.
 *
 * @module
 */
import type { Cidr } from "../../../lib/net/cidr.ts";
import type { IpAddress } from "../../../lib/net/ip_address.ts";
import type { Protocol } from "../../../lib/net/port.ts";

/** The tables that a Service proxy writes to. */
export type IptablesTable = "filter" | "mangle" | "nat";

/** A match that may be turned round. */
interface Negatable<T> {
  readonly value: T;
  /** Everything but the value. */
  readonly not?: true;
}

/** Ports from the first to the last, both included. */
interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** The conditions of a rule. A packet must meet all that are given. */
export interface RuleMatch {
  readonly source?: Negatable<IpAddress | Cidr>;
  readonly destination?: Negatable<IpAddress | Cidr>;
  /** Name of the interface, or a prefix of it followed by `+`. */
  readonly inInterface?: Negatable<string>;
  readonly protocol?: Protocol | "ICMP";
  /** Only with a protocol that has ports. */
  readonly destinationPorts?: PortRange;
  /** Match extensions, each as its words from the name on; they are tried in this order. */
  readonly extensions?: readonly (readonly string[])[];
}

/** A rule. Without a target it only counts the packet or updates a list, and the packet continues. */
export interface Rule extends RuleMatch {
  /** For people who read the rules. May contain names of objects, so it is quoted. */
  readonly comment?: string;
  /** The target and its options. */
  readonly target?: readonly string[];
  /** `-g`: at its end the chain returns to where this one would have. The target is then a chain. */
  readonly isGoto?: true;
}

/** A user-defined chain with its content. */
export interface Chain {
  readonly table: IptablesTable;
  readonly name: string;
  readonly rules: readonly Rule[];
}

/** A jump from a chain of other software to a chain of kube-relay. */
export interface Jump {
  readonly table: IptablesTable;
  readonly from: string;
  readonly rule: Rule;
}

/** The longest name of a chain that both variants take (XT_EXTENSION_MAXNAMELEN less one). */
export const MAX_CHAIN_NAME_LENGTH = 28;
/** XT_MAX_COMMENT_LEN less the final zero: one more and the whole table is refused. */
const MAX_COMMENT_LENGTH = 255;
/** Words that mean themselves to the parser of iptables-restore. */
const PLAIN_WORD = /^[A-Za-z0-9_.,:/+=@%[\]!-]+$/;
const ASCII_ONLY = /^[\x20-\x7e]*$/;

/**
 * A word as iptables-restore reads it back. The only way by which text of objects gets into rules.
 *
 * Its parser knows double quotes and the backslash inside of them. A line break would end the rule
 * even in quotes, and a byte beyond ASCII may be cut in half by the limit of a comment: both, and
 * control characters, become a question mark.
 */
export function quoteWord(word: string): string {
  if (PLAIN_WORD.test(word)) return word;
  const printable = ASCII_ONLY.test(word) ? word : word.replaceAll(/[^\x20-\x7e]/g, "?");
  return `"${printable.replaceAll(/["\\]/g, "\\$&")}"`;
}

/** Splits a rule into words, as iptables-restore does: the opposite of {@linkcode quoteWord}. */
export function splitWords(text: string): readonly string[] {
  if (!text.includes('"')) return text.split(" ").filter((word) => word !== "");
  const found = text.matchAll(/"((?:\\.|[^"\\])*)"|(\S+)/g);
  return [...found].map(([, quoted, plain]) => plain ?? quoted!.replaceAll(/\\(.)/g, "$1"));
}

/** A rule without its chain, e.g. `-d 10.0.0.1 -m tcp -p tcp --dport 80 -j DROP`. */
export function ruleText(rule: Rule): string {
  const { source, destination, inInterface, extensions, comment, target } = rule;
  let text = "";
  if (destination) text += negatable("-d", destination);
  if (source) text += negatable("-s", source);
  if (inInterface) {
    text += negatable("-i", { ...inInterface, value: quoteWord(inInterface.value) });
  }
  if (rule.protocol) text += protocolText(rule.protocol, rule.destinationPorts);
  for (const words of extensions ?? []) text += ` -m ${words.map(quoteWord).join(" ")}`;
  if (comment !== undefined) {
    text += ` -m comment --comment ${quoteWord(comment.slice(0, MAX_COMMENT_LENGTH))}`;
  }
  if (target) text += ` ${rule.isGoto ? "-g" : "-j"} ${target.map(quoteWord).join(" ")}`;
  return text.slice(1);
}

/** The line that makes a chain or, where it exists, empties it. */
function chainLine(name: string): string {
  return `:${name} - [0:0]`;
}

function negatable(flag: string, { value, not }: Negatable<string>): string {
  return not ? ` ! ${flag} ${value}` : ` ${flag} ${value}`;
}

function protocolText(protocol: Protocol | "ICMP", ports: PortRange | undefined): string {
  const name = protocol.toLowerCase();
  // Without a port the extension has nothing to match, and iptables-nft omits it anyway.
  if (ports === undefined) return ` -p ${name}`;
  const { first, last } = ports;
  return ` -m ${name} -p ${name} --dport ${first === last ? first : `${first}:${last}`}`;
}

/** The rules of a chain from the text of its object. */
export function ruleLines(text: string | undefined): readonly string[] {
  return text === undefined || text === "" ? [] : text.split("\n");
}

/** A chain that is created, or emptied, and filled. */
export interface WrittenChain {
  readonly name: string;
  /** The rules, as lines without `-A` and the chain. */
  readonly rules: readonly string[];
}

/** A rule of a chain that is not written as a whole. */
export interface ChainLine {
  /** The chain. */
  readonly from: string;
  /** As a tool prints it, without `-A` and the chain. */
  readonly rule: string;
}

/** The same of any table. */
export interface PlacedLine extends ChainLine {
  readonly table: IptablesTable;
}

/** One `*table … COMMIT`: changes of a table that take effect atomically. */
export interface RestorePart<Table extends string = string> {
  readonly table: Table;
  /** @default {none} */
  readonly chains?: readonly WrittenChain[];
  /** Rules that are added at the end of chains that keep their other rules. @default {none} */
  readonly appended?: readonly ChainLine[];
  /** Rules that are deleted; of equal rules of a chain, the first one. @default {none} */
  readonly removedJumps?: readonly ChainLine[];
  /** Rules that are inserted at the top of their chains, in this order. @default {none} */
  readonly jumps?: readonly (ChainLine | Pick<Jump, "from" | "rule">)[];
  /** Chains that are deleted. @default {none} */
  readonly removed?: readonly string[];
}

/** The lines of parts. Parts without a change are left out. */
export function restoreLines(parts: readonly RestorePart[]): string[] {
  return parts.flatMap((part) => {
    const lines = [...partLines(part)];
    return lines.length > EMPTY_PART_LINES ? lines : [];
  });
}

/** `*table` and `COMMIT`. */
const EMPTY_PART_LINES = 2;

/** The lines of a part. A chain is deleted last: it has to be empty, and no other may lead to it. */
export function* partLines(part: RestorePart): Generator<string> {
  const { table, chains = [], appended = [], removedJumps = [], jumps = [], removed = [] } = part;
  yield `*${table}`;
  for (const { name } of chains) yield chainLine(name);
  for (const name of removed) yield chainLine(name);
  for (const { name, rules } of chains) for (const rule of rules) yield `-A ${name} ${rule}`;
  for (const { from, rule } of appended) yield `-A ${from} ${rule}`;
  for (const { from, rule } of removedJumps) yield `-D ${from} ${rule}`;
  for (const { from, rule } of jumps) {
    yield `-I ${from} ${typeof rule === "string" ? rule : ruleText(rule)}`;
  }
  for (const name of removed) yield `-X ${name}`;
  yield "COMMIT";
}
