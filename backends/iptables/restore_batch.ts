/**
 * Input for one `iptables-restore --noflush`. Pure.
 *
 * @module
 */
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { chainLine, type IptablesTable, ruleText } from "../netfilter/iptables_objects.ts";
import type { AppliedChain } from "./applied_rules.ts";
import type { Jump } from "./base_chains.ts";
import type { ChainContent } from "./chain_ref.ts";

/** About as much as a pipe takes at once. */
const CHUNK_CHARACTERS = 65_536;
/** About 1,000 rules, well under a millisecond. */
const CHAINS_PER_STEP = 32;

/** One `*table … COMMIT`: what of a table is changed at one moment. */
export interface RestorePart {
  readonly table: IptablesTable;
  /** Chains to make, or to empty, and fill. */
  readonly chains: readonly (ChainContent & { readonly name: string })[];
  /** Chains to take away. */
  readonly removed: readonly string[];
  /** Jumps to take away before. @default {none} */
  readonly removedJumps?: readonly RemovedJump[];
  /** Jumps to insert at the top of their chains, in this order. */
  readonly jumps: readonly Jump[];
}

/** A rule of a built-in chain that goes. One like it that comes later in the chain stays. */
export interface RemovedJump {
  readonly table: IptablesTable;
  readonly from: string;
  /** As the tool printed it, without `-A` and the chain. */
  readonly rule: string;
}

/** How much a batch is. */
interface BatchCounts {
  bytes: number;
  /** Jumps inserted or taken away. */
  jumps: number;
  readonly rules: Record<IptablesTable, number>;
}

/** A batch under way. */
interface BatchLines {
  readonly lines: string[];
  readonly owners: (ServicePortKey | undefined)[];
  readonly counts: BatchCounts;
}

/** The input, line by line, and what will be there once it was taken. */
export class RestoreBatch {
  readonly lines: readonly string[];
  /** For {@linkcode AppliedRules.confirm}. */
  readonly applied: readonly AppliedChain[];
  readonly counts: Readonly<BatchCounts>;
  readonly #owners: readonly (ServicePortKey | undefined)[];

  private constructor({ lines, owners, counts }: BatchLines, applied: readonly AppliedChain[]) {
    this.lines = lines;
    this.counts = counts;
    this.applied = applied;
    this.#owners = owners;
  }

  /** Makes a batch in short steps: others may have their turn between two of them. */
  static *steps(
    parts: readonly RestorePart[],
    applied: readonly AppliedChain[],
  ): Generator<void, RestoreBatch, void> {
    const counts = { bytes: 0, jumps: 0, rules: { filter: 0, mangle: 0, nat: 0 } };
    const content: BatchLines = { lines: [], owners: [], counts };
    for (const part of parts) yield* addPart(content, part);
    return new RestoreBatch(content, applied);
  }

  /** Whether there is nothing to do. */
  get isEmpty(): boolean {
    return this.lines.length === 0;
  }

  /** The ServicePort that a line is for. Lines count from 1, as in the tool's messages. */
  ownerOf(line: number): ServicePortKey | undefined {
    return this.#owners[line - 1];
  }

  /** The table that a line, counted as above, is for. */
  tableOf(line: number): IptablesTable | undefined {
    const start = this.lines.findLast((text, index) => index < line && text.startsWith("*"));
    return start?.slice(1) as IptablesTable | undefined;
  }

  /** The input in pieces of about 64 KiB. */
  *text(): Generator<string> {
    let piece = "";
    for (const line of this.lines) {
      piece += `${line}\n`;
      if (piece.length < CHUNK_CHARACTERS) continue;
      yield piece;
      piece = "";
    }
    if (piece !== "") yield piece;
  }
}

function* addPart(content: BatchLines, part: RestorePart): Generator<void, void, void> {
  const { table, chains, removed, removedJumps = [], jumps } = part;
  const { counts } = content;
  const add = (line: string, owner?: ServicePortKey) => {
    content.lines.push(line);
    content.owners.push(owner);
    counts.bytes += line.length + 1;
  };
  add(`*${table}`);
  for (const { name } of chains) add(chainLine(name));
  // A chain that is not empty, or that another one still leads to, cannot be deleted.
  for (const name of removed) add(chainLine(name));
  yield;
  for (const [number, chain] of chains.entries()) {
    for (const [index, rule] of chain.rules.entries()) {
      add(`-A ${chain.name} ${rule}`, chain.owners[index]);
    }
    counts.rules[table] += chain.rules.length;
    if (number % CHAINS_PER_STEP === 0) yield;
  }
  for (const { from, rule } of removedJumps) add(`-D ${from} ${rule}`);
  for (const { from, rule } of jumps) add(`-I ${from} ${ruleText(rule)}`);
  counts.jumps += removedJumps.length + jumps.length;
  for (const name of removed) add(`-X ${name}`);
  add("COMMIT");
  yield;
}
