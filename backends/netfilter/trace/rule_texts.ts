/**
 * Looks up the text of rules that `nft monitor trace` knows by number, or prints in another language
 * than their owner's.
 *
 * @module
 */
import type { TraceStep } from "../../../lib/proxy/packet_trace.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { SavedRules } from "../iptables/iptables_save.ts";
import { readObjectHead, readTableHead } from "../nft/table_listing.ts";
import { tryTool } from "../probe/try_tool.ts";
import { type FollowedStep, withoutCounters } from "./nft_trace_events.ts";

/** A rule of nftables. */
interface ListedRule {
  readonly handle: number;
  /** In nft's syntax, without number and counters. */
  readonly text: string;
}

/** `family table chain` → its rules, in their order. */
type RuleListing = ReadonlyMap<string, readonly ListedRule[]>;

const LIST_TIMEOUT_MS = 60_000;
/** A concurrency that suits two to four cores. */
const AT_ONCE = 4;
/** nft reads its arguments as commands. */
const CHAIN_NAME = /^[A-Za-z][\w.-]*$/;

/** Takes the lines of `nft -a list chain` and `nft -a list table`. */
class RuleListingReader {
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
async function listChains(
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
function withListedText(step: FollowedStep, listing: RuleListing): FollowedStep {
  if (!isUnknown(step)) return step;
  const found = listing.get(step.place)?.find(({ handle }) => handle === step.handle);
  return found ? { ...step, rule: found.text } : step;
}

/**
 * Gives rules that the tool knows by number alone their text. `nft monitor` may have read none of them,
 * or not those that changed since. Lists all tables of a family, but no elements: for a single chain, nft
 * 1.0.6 reads all elements of its table, which takes half a second at ten thousand Services.
 */
export async function lookUpUnknownRules(
  commands: CommandRunner,
  steps: readonly FollowedStep[],
): Promise<readonly FollowedStep[]> {
  const families = new Set(steps.filter(isUnknown).map(({ place }) => place.split(" ")[0] ?? ""));
  const listing = await list(commands, [...families].map((family) => ["ruleset", family]));
  return steps.map((step) => withListedText(step, listing));
}

/** The chains in which rules were passed, as `family table chain`. */
function chainsOf(steps: readonly FollowedStep[]): ReadonlySet<string> {
  return new Set(steps.filter(({ handle }) => handle !== undefined).map(({ place }) => place));
}

/** Whether the tool printed only the number of the rule. */
function isUnknown({ rule, handle }: FollowedStep): boolean {
  return handle !== undefined && rule === `rule handle ${handle}`;
}

/**
 * Maps items with limited concurrency and returns the results in order. Rejects with the first
 * failure.
 */
async function mapAtOnce<Item, Result>(
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

const IPTABLES_TABLES: ReadonlySet<string> = new Set([
  "filter",
  "mangle",
  "nat",
  "raw",
  "security",
]);

/**
 * Returns the steps with rules of iptables-nft as `iptables` prints them, since nft prints them in its
 * own syntax and without comments. (`xtables-monitor --trace` prints iptables' syntax, but ends at the
 * first rule that it cannot read: those of nftables, and with 1.8.9 each one of IPv6 with a port.)
 * `program`: e.g. `ip6tables-nft`.
 */
export async function inIptablesSyntax(
  commands: CommandRunner,
  program: string,
  steps: readonly FollowedStep[],
): Promise<readonly TraceStep[]> {
  const chains = [...chainsOf(steps.filter((step) => isOfIptables(step.place) || isUnknown(step)))];
  const [listing, texts] = await Promise.all([
    listChains(commands, chains),
    readIptablesTexts(commands, program, chains.filter(isOfIptables).map(placeOf)),
  ]);
  return steps.map((step) => inWordsOfIptables(withListedText(step, listing), { listing, texts }));
}

/** Returns the step in iptables' syntax; unchanged if the rule is not found. */
function inWordsOfIptables(
  { handle, ...step }: FollowedStep,
  { listing, texts }: { readonly listing: RuleListing; readonly texts: IptablesTexts },
): TraceStep {
  if (!isOfIptables(step.place)) return step;
  const place = placeOf(step.place);
  const listed = listing.get(step.place) ?? [];
  const rules = texts.get(place) ?? [];
  // Rules of nftables in a table of iptables are not printed by the tool.
  const isWhole = listed.length === rules.length;
  const index = isWhole ? listed.findIndex((each) => each.handle === handle) : -1;
  const rule = rules[index];
  return { ...step, place, ...(rule !== undefined && { rule }) };
}

function isOfIptables(place: string): boolean {
  return IPTABLES_TABLES.has(place.split(" ")[1] ?? "");
}

/** Without the family. */
function placeOf(place: string): string {
  return place.split(" ").slice(1).join(" ");
}

/** `table chain` → its rules without `-A` and the chain, in their order. */
type IptablesTexts = ReadonlyMap<string, readonly string[]>;

/** A chain that cannot be read, e.g. because it is gone, is left out. */
async function readIptablesTexts(
  commands: CommandRunner,
  program: string,
  chains: readonly string[],
): Promise<IptablesTexts> {
  const texts = await mapAtOnce(chains, AT_ONCE, async (place) => {
    const [table = "", chain = ""] = place.split(" ");
    const reader = new SavedRules(({ rule }) => rule, table);
    const answer = await tryTool({ commands }, [program, "-t", table, "-S", chain], {
      timeoutMs: LIST_TIMEOUT_MS,
      onLine: (line) => reader.take(line),
    });
    const isPrinted = answer.kind === "ended" && answer.code === 0;
    return isPrinted ? [[place, reader.rules.get(place) ?? []] as const] : [];
  });
  return new Map(texts.flat());
}
