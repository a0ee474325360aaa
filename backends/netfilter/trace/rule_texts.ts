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

const LIST_TIMEOUT_MS = 60_000;
const IPTABLES_TABLES = ["filter", "mangle", "nat", "raw", "security"];

/**
 * Gives rules that the tool knows by number alone their text: `nft monitor` may have read none of them,
 * or not those that changed since. Lists all tables of a family, but no elements: for a single chain, nft
 * 1.0.6 reads all elements of its table, which takes half a second at ten thousand Services.
 *
 * `save`, e.g. `ip6tables-nft-save`: rules of iptables-nft are as it prints them, since nft prints them
 * in its own syntax and without comments. (`xtables-monitor --trace` prints iptables' syntax, but ends at
 * the first rule that it cannot read: those of nftables, and with 1.8.9 each one of IPv6 with a port.)
 */
export async function lookUpRules(
  commands: CommandRunner,
  steps: readonly FollowedStep[],
  save?: string,
): Promise<readonly TraceStep[]> {
  const isOfIptables = (place: string) =>
    save !== undefined && IPTABLES_TABLES.includes(place.split(" ")[1] ?? "");
  const sought = new Set(
    steps.filter((step) => step.handle !== undefined && isOfIptables(step.place) || isUnknown(step))
      .map(({ place }) => place),
  );
  const listing = await listRules(commands, sought);
  const chains = new Set([...sought].filter(isOfIptables).map((place) => place.split(" ")[2]));
  const printed = new SavedRules(({ chain, rule }) => chains.has(chain) ? rule : undefined);
  if (save !== undefined && chains.size > 0) {
    const take = (line: string) => printed.take(line);
    await tryTool({ commands }, [save], { timeoutMs: LIST_TIMEOUT_MS, onLine: take });
  }
  return steps.map((followed) => {
    const { handle, ...step } = followed;
    const listed = listing.get(step.place) ?? [];
    const index = listed.findIndex((each) => each.handle === handle);
    const text = isUnknown(followed) ? listed[index]?.text : undefined;
    const known = { ...step, ...(text !== undefined && { rule: text }) };
    if (!isOfIptables(step.place)) return known;
    const place = step.place.slice(step.place.indexOf(" ") + 1);
    const rules = printed.rules.get(place) ?? [];
    // Rules of nftables in a table of iptables are not printed by the tool.
    const rule = listed.length === rules.length ? rules[index] : undefined;
    return { ...known, place, ...(rule !== undefined && { rule }) };
  });
}

/** Lists the rules of places, each given as `family table chain`, in their order. */
async function listRules(
  commands: CommandRunner,
  places: ReadonlySet<string>,
): Promise<ReadonlyMap<string, readonly ListedRule[]>> {
  const rules = new Map<string, ListedRule[]>();
  let table = "";
  let chain: ListedRule[] | undefined;
  const take = (line: string) => {
    const head = readTableHead(line);
    if (head) table = `${head.family} ${head.name}`;
    const object = readObjectHead(line);
    const place = `${table} ${object?.name}`;
    if (object?.kind === "chain" && places.has(place)) rules.set(place, chain = []);
    else if (/^\t\S/.test(line)) chain = undefined;
    const [, text, handle] = /^\t\t(.*) # handle (\d{1,9})$/.exec(line) ?? [];
    if (text !== undefined) chain?.push({ handle: Number(handle), text: withoutCounters(text) });
  };
  for (const family of new Set([...places].map((place) => place.split(" ")[0]!))) {
    const options = { timeoutMs: LIST_TIMEOUT_MS, onLine: take };
    await commands.run("nft", ["-a", "-t", "list", "ruleset", family], options);
  }
  return rules;
}

/** Whether the tool printed only the number of the rule. */
function isUnknown({ rule, handle }: FollowedStep): boolean {
  return handle !== undefined && rule === `rule handle ${handle}`;
}
