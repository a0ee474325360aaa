/**
 * Input for one `iptables-restore --noflush`, for any table and chain. Pure.
 *
 * @module
 */
import { inPieces } from "../../../lib/os/command_input.ts";
import { chainLine, type IptablesTable, type Jump, ruleText } from "./iptables_objects.ts";

/** Lines between two pauses, well under a millisecond. */
const LINES_PER_STEP = 1024;

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
export interface RestorePart {
  readonly table: string;
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

/** The size of a batch. */
interface BatchCounts {
  bytes: number;
  /** Jumps inserted or deleted. */
  jumps: number;
  /** Rules by table. */
  readonly rules: Map<string, number>;
}

/** The input, line by line. */
export class RestoreBatch {
  readonly lines: readonly string[];
  readonly counts: Readonly<BatchCounts>;

  private constructor({ lines, counts }: Pick<RestoreBatch, "counts" | "lines">) {
    this.lines = lines;
    this.counts = counts;
  }

  /** Makes a batch in short steps: other tasks may have their turn between two of them. */
  static *steps(parts: readonly RestorePart[]): Generator<void, RestoreBatch, void> {
    const lines: string[] = [];
    const counts: BatchCounts = { bytes: 0, jumps: 0, rules: new Map() };
    for (const part of parts) {
      const { table, chains = [], appended = [], removedJumps = [], jumps = [] } = part;
      for (const text of partLines(part)) {
        counts.bytes += text.length + 1;
        if (lines.push(text) % LINES_PER_STEP === 0) yield;
      }
      const rules = chains.reduce((sum, chain) => sum + chain.rules.length, appended.length);
      counts.rules.set(table, (counts.rules.get(table) ?? 0) + rules);
      counts.jumps += removedJumps.length + jumps.length;
    }
    return new RestoreBatch({ lines, counts });
  }

  /** Whether there is nothing to do. */
  get isEmpty(): boolean {
    return this.lines.length === 0;
  }

  /** The input in pieces of about 64 KiB. */
  text(): Generator<string> {
    return inPieces(this.lines);
  }
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
