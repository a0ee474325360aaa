/**
 * Input for one `iptables-restore --noflush`, for any table and chain. Pure.
 *
 * @module
 */
import { chainLine, type IptablesTable, type Jump, ruleText } from "./iptables_objects.ts";

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
