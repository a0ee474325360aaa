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

/** The input, line by line, and what will be there once it was taken. */
export class RestoreBatch {
  readonly lines: readonly string[];
  /** For {@linkcode AppliedRules.confirm}. */
  readonly applied: readonly AppliedChain[];
  /** Rules in it, without jumps. */
  readonly rules: number;
  readonly #owners: readonly (ServicePortKey | undefined)[];

  constructor(parts: readonly RestorePart[], applied: readonly AppliedChain[]) {
    const lines: string[] = [];
    const owners: (ServicePortKey | undefined)[] = [];
    let rules = 0;
    const add = (line: string, owner?: ServicePortKey) => {
      lines.push(line);
      owners.push(owner);
    };
    for (const { table, chains, removed, removedJumps = [], jumps } of parts) {
      add(`*${table}`);
      for (const { name } of chains) add(chainLine(name));
      // A chain that is not empty, or that another one still leads to, cannot be deleted.
      for (const name of removed) add(chainLine(name));
      for (const chain of chains) {
        rules += chain.rules.length;
        for (const [index, rule] of chain.rules.entries()) {
          add(`-A ${chain.name} ${rule}`, chain.owners[index]);
        }
      }
      for (const { from, rule } of removedJumps) add(`-D ${from} ${rule}`);
      for (const { from, rule } of jumps) add(`-I ${from} ${ruleText(rule)}`);
      for (const name of removed) add(`-X ${name}`);
      add("COMMIT");
    }
    this.lines = lines;
    this.applied = applied;
    this.rules = rules;
    this.#owners = owners;
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
