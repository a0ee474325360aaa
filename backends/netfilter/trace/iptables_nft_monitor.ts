/**
 * Follows a marked packet through the rules of iptables-nft. nft prints them in its own syntax and
 * without comments, so each rule is looked up by number in the output of `iptables -S`.
 * (`xtables-monitor --trace` prints iptables' syntax, but ends at the first rule that it cannot
 * read: those of nftables, and with 1.8.9 each one of IPv6 with a port.)
 *
 * @module
 */
import type { TraceStep } from "../../../lib/proxy/packet_trace.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import { SavedRules } from "../iptables/iptables_save.ts";
import type { TraceMonitor } from "./event_watch.ts";
import { nftMonitorLines, parseNftTraceLines } from "./nft_monitor_text.ts";
import type { FollowedStep } from "./packet_follower.ts";
import {
  chainsOf,
  isUnknown,
  listChains,
  mapAtOnce,
  type RuleListing,
  withListedText,
} from "./rule_listing.ts";

const IPTABLES_TABLES: ReadonlySet<string> = new Set([
  "filter",
  "mangle",
  "nat",
  "raw",
  "security",
]);

interface IptablesNftOptions {
  readonly family: IpFamily;
  /** The table that marks the packet. */
  readonly table: string;
  /** E.g. `ip6tables-nft-save`. */
  readonly save: string;
}

/** The kernel's trace as a monitor. */
export function iptablesNftMonitor(
  { commands }: { readonly commands: CommandRunner },
  { family, table, save }: IptablesNftOptions,
): TraceMonitor {
  return {
    way: "nft monitor trace",
    lines: nftMonitorLines({ family, table }),
    parse: parseNftTraceLines,
    async finish(steps) {
      const looked = steps.filter((step) => isOfIptables(step.place) || isUnknown(step));
      const chains = [...chainsOf(looked)];
      const [listing, texts] = await Promise.all([
        listChains(commands, chains),
        readIptablesTexts(commands, { save, chains: chains.filter(isOfIptables).map(placeOf) }),
      ]);
      return steps.map((step) =>
        inWordsOfIptables(withListedText(step, listing), { listing, texts })
      );
    },
  };
}

/** Returns the step in iptables' syntax; unchanged if the rule is not found. */
export function inWordsOfIptables(
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

interface IptablesTextsOptions {
  /** E.g. `ip6tables-nft-save`. */
  readonly save: string;
  /** Each as `table chain`. */
  readonly chains: readonly string[];
}

const TIMEOUT_MS = 60_000;
/** A concurrency that suits two to four cores. */
const AT_ONCE = 4;

/**
 * Asks for each chain alone, some at once, which does not take longer where there are more of them; for
 * everything where that is refused.
 */
export async function readIptablesTexts(
  commands: CommandRunner,
  { save, chains }: IptablesTextsOptions,
): Promise<IptablesTexts> {
  const program = save.replace(/-save$/, "");
  const texts = await mapAtOnce(chains, AT_ONCE, async (place) => {
    const [table = "", chain = ""] = place.split(" ");
    const reader = new SavedRules(({ rule }) => rule, table);
    const isReported = await read(commands, [program, "-t", table, "-S", chain], reader);
    return isReported ? [place, reader.rules.get(place) ?? []] as const : undefined;
  });
  const found = texts.filter((each) => each !== undefined);
  return found.length === chains.length ? new Map(found) : await readAll(commands, save);
}

async function readAll(commands: CommandRunner, save: string): Promise<IptablesTexts> {
  const reader = new SavedRules(({ rule }) => rule);
  await read(commands, [save], reader);
  return reader.rules;
}

/** Returns whether the tool succeeded. */
async function read(
  commands: CommandRunner,
  [program = "", ...args]: readonly string[],
  reader: Pick<SavedRules<string>, "take">,
): Promise<boolean> {
  try {
    const { code } = await commands.run(program, args, {
      timeoutMs: TIMEOUT_MS,
      onLine: (line) => reader.take(line),
    });
    return code === 0;
  } catch (error) {
    if (error instanceof CommandError) return false;
    throw error;
  }
}
