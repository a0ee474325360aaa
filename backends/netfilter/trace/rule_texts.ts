/**
 * Looks up the text of rules that `nft monitor trace` knows by number, or prints in another language
 * than their owner's.
 *
 * @module
 */
import type { TraceStep } from "../../../lib/proxy/packet_trace.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { parseSaveLine } from "../iptables/iptables_save.ts";
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
/** nft reads its arguments as commands. */
const CHAIN_NAME = /^[A-Za-z][\w.-]*$/;

/**
 * Gives rules that the tool knows by number alone their text: `nft monitor` may have read none of them,
 * or not those that changed since. Lists all tables of a family, but no elements: for a single chain, nft
 * 1.0.6 reads all elements of its table, which takes half a second at ten thousand Services.
 *
 * `iptables`, e.g. `ip6tables-nft`: rules of its tables are as it prints them, since nft prints them in
 * its own syntax and without comments. They are read chain by chain: with ten thousand Services a table
 * takes seconds, and a packet passes a dozen chains. (`xtables-monitor --trace` prints iptables' syntax,
 * but ends at the first rule that it cannot read: those of nftables, and with 1.8.9 each one of IPv6
 * with a port.)
 */
export async function lookUpRules(
  commands: CommandRunner,
  steps: readonly FollowedStep[],
  iptables?: string,
): Promise<readonly TraceStep[]> {
  const isOfIptables = (place: string) =>
    iptables !== undefined && IPTABLES_TABLES.includes(place.split(" ")[1] ?? "");
  const sought = new Set(
    steps.filter((step) => step.handle !== undefined && isOfIptables(step.place) || isUnknown(step))
      .map(({ place }) => place),
  );
  const listing = new Map<string, readonly ListedRule[]>();
  const printed = new Map<string, readonly string[]>();
  for (const place of sought) {
    const [family = "", table = "", chain = ""] = place.split(" ");
    const isOwn = iptables !== undefined && isOfIptables(place);
    const [listed, rules] = await Promise.all([
      listing.has(place) ? undefined : listRules(
        commands,
        isOwn && CHAIN_NAME.test(chain) ? ["chain", family, table, chain] : ["ruleset", family],
      ),
      isOwn ? printRules(commands, [iptables, "-t", table, "-S", chain]) : [],
    ]);
    for (const [each, rules] of listed ?? []) listing.set(each, rules);
    printed.set(place, rules);
  }
  return steps.map((followed) => {
    const { handle, ...step } = followed;
    const listed = listing.get(step.place) ?? [];
    const index = listed.findIndex((each) => each.handle === handle);
    const text = isUnknown(followed) ? listed[index]?.text : undefined;
    const known = { ...step, ...(text !== undefined && { rule: text }) };
    if (!isOfIptables(step.place)) return known;
    const rules = printed.get(step.place) ?? [];
    // Rules of nftables in a table of iptables are not printed by the tool.
    const rule = listed.length === rules.length ? rules[index] : undefined;
    const place = step.place.slice(step.place.indexOf(" ") + 1);
    return { ...known, place, ...(rule !== undefined && { rule }) };
  });
}

/** Lists rules by `family table chain`, in their order. */
async function listRules(
  commands: CommandRunner,
  what: readonly string[],
): Promise<ReadonlyMap<string, readonly ListedRule[]>> {
  const rules = new Map<string, ListedRule[]>();
  let table = "";
  let chain: ListedRule[] | undefined;
  const take = (line: string) => {
    const head = readTableHead(line);
    if (head) table = `${head.family} ${head.name}`;
    const object = readObjectHead(line);
    if (object?.kind === "chain") rules.set(`${table} ${object.name}`, chain = []);
    else if (/^\t\S/.test(line)) chain = undefined;
    const [, text, handle] = /^\t\t(.*) # handle (\d{1,9})$/.exec(line) ?? [];
    if (text !== undefined) chain?.push({ handle: Number(handle), text: withoutCounters(text) });
  };
  const options = { timeoutMs: LIST_TIMEOUT_MS, onLine: take };
  await commands.run("nft", ["-a", "-t", "list", ...what], options);
  return rules;
}

/** Prints the rules of a chain; none if it cannot be read, e.g. because it is gone. */
async function printRules(
  commands: CommandRunner,
  line: readonly [string, ...string[]],
): Promise<readonly string[]> {
  const rules: string[] = [];
  const answer = await tryTool({ commands }, line, {
    timeoutMs: LIST_TIMEOUT_MS,
    onLine: (text) => {
      const read = parseSaveLine(text);
      if (read?.kind === "rule") rules.push(read.rule);
    },
  });
  return answer.kind === "ended" && answer.code === 0 ? rules : [];
}

/** Whether the tool printed only the number of the rule. */
function isUnknown({ rule, handle }: FollowedStep): boolean {
  return handle !== undefined && rule === `rule handle ${handle}`;
}
