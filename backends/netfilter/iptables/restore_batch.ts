/**
 * Input for one `iptables-restore --noflush`, for any table, chain and owner of a line. Pure.
 *
 * @module
 */
import { inPieces } from "../../../lib/os/command_input.ts";
import { chainLine, type IptablesTable, type Jump, ruleText } from "./iptables_objects.ts";

/** Lines between two pauses, well under a millisecond. */
const LINES_PER_STEP = 1024;

/** A chain that is created, or emptied, and filled. */
export interface WrittenChain<Owner = never> {
  readonly name: string;
  /** The rules, as lines without `-A` and the chain. */
  readonly rules: readonly string[];
  /** The owner of each rule; `undefined` for shared rules. @default {all are shared} */
  readonly owners?: readonly (Owner | undefined)[];
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
export interface RestorePart<Owner = never> {
  readonly table: string;
  /** @default {none} */
  readonly chains?: readonly WrittenChain<Owner>[];
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

/** A line of the input, and its owner. */
type OwnedLine<Owner> = readonly [text: string, owner?: Owner | undefined];

/** The input, line by line. */
export class RestoreBatch<Owner extends string> {
  readonly lines: readonly string[];
  readonly counts: Readonly<BatchCounts>;
  readonly #owners: readonly (Owner | undefined)[];

  private constructor(
    { lines, counts }: Pick<RestoreBatch<Owner>, "counts" | "lines">,
    owners: readonly (Owner | undefined)[],
  ) {
    this.lines = lines;
    this.counts = counts;
    this.#owners = owners;
  }

  /** Makes a batch in short steps: other tasks may have their turn between two of them. */
  static *steps<Owner extends string>(
    parts: readonly RestorePart<Owner>[],
  ): Generator<void, RestoreBatch<Owner>, void> {
    const lines: string[] = [];
    const owners: (Owner | undefined)[] = [];
    const counts: BatchCounts = { bytes: 0, jumps: 0, rules: new Map() };
    for (const part of parts) {
      const { table, chains = [], appended = [], removedJumps = [], jumps = [] } = part;
      for (const [text, owner] of partLines(part)) {
        owners.push(owner);
        counts.bytes += text.length + 1;
        if (lines.push(text) % LINES_PER_STEP === 0) yield;
      }
      const rules = chains.reduce((sum, chain) => sum + chain.rules.length, appended.length);
      counts.rules.set(table, (counts.rules.get(table) ?? 0) + rules);
      counts.jumps += removedJumps.length + jumps.length;
    }
    return new RestoreBatch({ lines, counts }, owners);
  }

  /** Whether there is nothing to do. */
  get isEmpty(): boolean {
    return this.lines.length === 0;
  }

  /** Returns the owner of a line. Lines count from 1, as in the tool's messages. */
  ownerOf(line: number): Owner | undefined {
    return this.#owners[line - 1];
  }

  /** The input in pieces of about 64 KiB. */
  text(): Generator<string> {
    return inPieces(this.lines);
  }
}

/** The lines of parts, for callers that need no owners. Parts without a change are left out. */
export function restoreLines(parts: readonly RestorePart[]): string[] {
  return parts.flatMap((part) => {
    const lines = [...partLines(part)].map(([text]) => text);
    return lines.length > EMPTY_PART_LINES ? lines : [];
  });
}

/** `*table` and `COMMIT`. */
const EMPTY_PART_LINES = 2;

/** The lines of a part. A chain is deleted last: it has to be empty, and no other may lead to it. */
export function* partLines<Owner>(part: RestorePart<Owner>): Generator<OwnedLine<Owner>> {
  const { table, chains = [], appended = [], removedJumps = [], jumps = [], removed = [] } = part;
  yield [`*${table}`];
  for (const { name } of chains) yield [chainLine(name)];
  for (const name of removed) yield [chainLine(name)];
  for (const { name, rules, owners } of chains) {
    for (const [index, rule] of rules.entries()) yield [`-A ${name} ${rule}`, owners?.[index]];
  }
  for (const { from, rule } of appended) yield [`-A ${from} ${rule}`];
  for (const { from, rule } of removedJumps) yield [`-D ${from} ${rule}`];
  for (const { from, rule } of jumps) {
    yield [`-I ${from} ${typeof rule === "string" ? rule : ruleText(rule)}`];
  }
  for (const name of removed) yield [`-X ${name}`];
  yield ["COMMIT"];
}
