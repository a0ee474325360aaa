/**
 * Rules with their numbers, as `nft -a` lists them.
 *
 * @module
 */
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { withoutCounters } from "./nft_monitor_text.ts";
import type { FollowedStep } from "./packet_follower.ts";

/** A rule of nftables. */
export interface ListedRule {
  readonly handle: number;
  /** In the words of nft, without number and counters. */
  readonly text: string;
}

/** `family table chain` → its rules, in their order. */
export type RuleListing = ReadonlyMap<string, readonly ListedRule[]>;

const LIST_TIMEOUT_MS = 60_000;
/** nft reads its arguments as commands. */
const CHAIN_NAME = /^[A-Za-z][\w.-]*$/;

/** Takes the lines of `nft -a list chain` and `nft -a list table`. */
export class RuleListingReader {
  readonly rules = new Map<string, ListedRule[]>();
  #table = "";
  #chain: ListedRule[] | undefined;

  /** Takes a line without its end. */
  take(line: string): void {
    const [, table] = /^table (\S+ \S+) \{/.exec(line) ?? [];
    if (table !== undefined) this.#table = table;
    const [, chain] = /^\tchain (\S+) \{/.exec(line) ?? [];
    if (chain !== undefined) {
      this.#chain = [];
      this.rules.set(`${this.#table} ${chain}`, this.#chain);
    } else if (/^\t\S/.test(line)) this.#chain = undefined;
    const [, text, handle] = /^\t\t(.*) # handle (\d{1,9})$/.exec(line) ?? [];
    if (text === undefined) return;
    this.#chain?.push({ handle: Number(handle), text: withoutCounters(text) });
  }
}

/**
 * Lists the rules of chains, each given as `family table chain`. One by one: with ten thousand Services
 * a table takes a second, and a packet passes a dozen chains. What nft can't read as the name of a
 * chain, since iptables takes more, is found in the listing of its table.
 */
export async function listRules(
  commands: CommandRunner,
  chains: Iterable<string>,
): Promise<RuleListing> {
  const reader = new RuleListingReader();
  const list = (...what: readonly string[]) =>
    commands.run("nft", ["-a", "-t", "list", ...what], {
      timeoutMs: LIST_TIMEOUT_MS,
      onLine: (line) => reader.take(line),
    });
  const tables = new Set<string>();
  for (const place of chains) {
    const [family = "", table = "", chain = ""] = place.split(" ");
    if (CHAIN_NAME.test(chain)) await list("chain", family, table, chain);
    if (!reader.rules.has(place)) tables.add(`${family} ${table}`);
  }
  for (const table of tables) await list("table", ...table.split(" "));
  return reader.rules;
}

/**
 * Gives rules that the tool knows by number alone their text. `nft monitor` reads all rules when it
 * starts; what is changed at that moment, or later, it does not have, and sometimes nothing at all.
 */
export async function tellUnknownRules(
  commands: CommandRunner,
  steps: readonly FollowedStep[],
): Promise<readonly FollowedStep[]> {
  const unknown = steps.filter(isUnknown);
  if (unknown.length === 0) return steps;
  const listing = await listRules(commands, chainsOf(unknown));
  return steps.map((step) => {
    if (!isUnknown(step)) return step;
    const found = listing.get(step.place)?.find(({ handle }) => handle === step.handle);
    return found ? { ...step, rule: found.text } : step;
  });
}

/** The chains in which rules were passed, as `family table chain`. */
export function chainsOf(steps: readonly FollowedStep[]): ReadonlySet<string> {
  return new Set(steps.filter(({ handle }) => handle !== undefined).map(({ place }) => place));
}

function isUnknown({ rule, handle }: FollowedStep): boolean {
  return handle !== undefined && rule === `rule handle ${handle}`;
}
