import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { readObjectHead, readTableHead } from "../nft/table_listing.ts";
import { withoutCounters } from "./nft_monitor_text.ts";
import type { FollowedStep } from "./packet_follower.ts";

/** A rule of nftables. */
interface ListedRule {
  readonly handle: number;
  /** In nft's syntax, without number and counters. */
  readonly text: string;
}

/** `family table chain` → its rules, in their order. */
export type RuleListing = ReadonlyMap<string, readonly ListedRule[]>;

const LIST_TIMEOUT_MS = 60_000;
/** A concurrency that suits two to four cores. */
const AT_ONCE = 4;
/** nft reads its arguments as commands. */
const CHAIN_NAME = /^[A-Za-z][\w.-]*$/;

/** Takes the lines of `nft -a list chain` and `nft -a list table`. */
export class RuleListingReader {
  readonly rules = new Map<string, ListedRule[]>();
  #table = "";
  #chain: ListedRule[] | undefined;

  /** Takes a line without its end. */
  take(line: string): void {
    const table = readTableHead(line);
    if (table) this.#table = `${table.family} ${table.name}`;
    const head = readObjectHead(line);
    if (head?.kind === "chain") {
      this.#chain = [];
      this.rules.set(`${this.#table} ${head.name}`, this.#chain);
    } else if (/^\t\S/.test(line)) this.#chain = undefined;
    const [, text, handle] = /^\t\t(.*) # handle (\d{1,9})$/.exec(line) ?? [];
    if (text === undefined) return;
    this.#chain?.push({ handle: Number(handle), text: withoutCounters(text) });
  }
}

/**
 * Lists the rules of chains, each given as `family table chain`. Chain by chain, some at once: with ten thousand Services a table of iptables takes a second, and
 * a packet passes a dozen chains. What nft can't read as the name of a chain, since iptables takes more,
 * is found in the listing of its table.
 */
export async function listChains(
  commands: CommandRunner,
  chains: Iterable<string>,
): Promise<RuleListing> {
  const places = [...chains];
  const byChain = await list(
    commands,
    places.map((place) => place.split(" "))
      .filter(([, , chain = ""]) => CHAIN_NAME.test(chain))
      .map((words) => ["chain", ...words]),
  );
  const tables = new Set(
    places.filter((place) => !byChain.has(place)).map((place) =>
      place.split(" ").slice(0, 2).join(" ")
    ),
  );
  const byTable = await list(commands, [...tables].map((table) => ["table", ...table.split(" ")]));
  return new Map([...byTable, ...byChain]);
}

/**
 * As above, for all tables in the families of these chains. For tables with large maps: for a
 * chain, nft 1.0.6 reads all elements of its table, which takes half a second at ten thousand
 * Services; this lists no elements.
 */
export async function listRulesets(
  commands: CommandRunner,
  chains: Iterable<string>,
): Promise<RuleListing> {
  const families = new Set([...chains].map((place) => place.split(" ")[0] ?? ""));
  return await list(commands, [...families].map((family) => ["ruleset", family]));
}

async function list(
  commands: CommandRunner,
  what: readonly (readonly string[])[],
): Promise<RuleListing> {
  const listings = await mapAtOnce(what, AT_ONCE, async (words) => {
    const reader = new RuleListingReader();
    await commands.run("nft", ["-a", "-t", "list", ...words], {
      timeoutMs: LIST_TIMEOUT_MS,
      onLine: (line) => reader.take(line),
    });
    return [...reader.rules];
  });
  return new Map(listings.flat());
}

/** The step with its rule's text, where the tool knew it by number alone. */
export function withListedText(step: FollowedStep, listing: RuleListing): FollowedStep {
  if (!isUnknown(step)) return step;
  const found = listing.get(step.place)?.find(({ handle }) => handle === step.handle);
  return found ? { ...step, rule: found.text } : step;
}

/**
 * Gives rules that the tool knows by number alone their text. `nft monitor` may have read none of them,
 * or not those that changed since.
 */
export async function lookUpUnknownRules(
  steps: readonly FollowedStep[],
  listRules: (chains: Iterable<string>) => Promise<RuleListing>,
): Promise<readonly FollowedStep[]> {
  const unknown = steps.filter(isUnknown);
  if (unknown.length === 0) return steps;
  const listing = await listRules(chainsOf(unknown));
  return steps.map((step) => withListedText(step, listing));
}

/** The chains in which rules were passed, as `family table chain`. */
export function chainsOf(steps: readonly FollowedStep[]): ReadonlySet<string> {
  return new Set(steps.filter(({ handle }) => handle !== undefined).map(({ place }) => place));
}

/** Whether the tool printed only the number of the rule. */
export function isUnknown({ rule, handle }: FollowedStep): boolean {
  return handle !== undefined && rule === `rule handle ${handle}`;
}

/**
 * Maps items with limited concurrency and returns the results in order. Rejects with the first
 * failure.
 */
export async function mapAtOnce<Item, Result>(
  items: readonly Item[],
  atOnce: number,
  of: (item: Item) => Promise<Result>,
): Promise<readonly Result[]> {
  const results: Result[] = [];
  const left = items.entries();
  const work = async () => {
    for (const [index, item] of left) results[index] = await of(item);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, work));
  return results;
}
