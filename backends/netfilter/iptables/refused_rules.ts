import { messageOf } from "../../../lib/log/message_of.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { IptablesTable } from "./iptables_objects.ts";
import { IptablesError } from "./iptables_runner.ts";

/**
 * Enough for 2,000 refused rules, or 300 of 10,000. Then what is left of the suspects is judged in groups:
 * all rules in force stay meanwhile, but no change is written.
 */
const MAX_TRIALS = 4_096;
/**
 * iptables-legacy writes a large table as a whole for each trial. The groups that remain are judged
 * then, which takes as long again at most.
 */
const MAX_SEARCH_MS = 30_000;
/** `*table` and the line of the chain. */
const LINES_BEFORE = 2;
const HARMLESS = "-j RETURN";

/** Whether the tool refused its input, so that a rule may be to blame. */
export function isRefused(error: unknown): error is IptablesError {
  return error instanceof IptablesError && error.kind === "refused";
}

/**
 * Finds the rules that the kernel refuses, and why. Each trial is a chain to which no rule leads, so all
 * rules in force stay as they are. iptables-nft names the refused lines; iptables-legacy only says that
 * there are some, and its suspects are halved.
 *
 * Returns `undefined` if a harmless rule is refused as well: then no rule is to blame, but the table,
 * e.g. because iptables-legacy writes a foreign rule back that the kernel no longer accepts.
 *
 * `restore` runs `iptables-restore`.
 *
 * @param chain Its leftover is a chain of kube-relay, which the next comparison removes.
 */
export async function findRefusedRules(
  { clock, restore }: {
    readonly clock: Pick<Clock, "now">;
    readonly restore: (lines: readonly string[]) => Promise<void>;
  },
  table: IptablesTable,
  chain: string,
  rules: Iterable<string>,
): Promise<ReadonlyMap<string, string> | undefined> {
  const refused = new Map<string, string>();
  const groups: (readonly string[])[] = [[...new Set(rules)]];
  let mayTableBeRefused = true;
  const endsAt = clock.now() + MAX_SEARCH_MS;
  // The largest ones first: a search that is cut off then blames few accepted rules.
  for (let trials = 1; groups.length > 0; trials++) {
    const group = groups.shift()!;
    if (group.length === 0) continue;
    const error = await refusalOf(restore(trialLines(table, chain, group)));
    if (error === undefined) continue;
    if (mayTableBeRefused && await refusalOf(restore(trialLines(table, chain, [HARMLESS])))) {
      return undefined;
    }
    mayTableBeRefused = false;
    const named = error.numbers.flatMap((number) => group[number - 1 - LINES_BEFORE] ?? []);
    const isOver = trials > MAX_TRIALS || clock.now() >= endsAt;
    const blamed = group.length === 1 || isOver ? group : named;
    for (const rule of blamed) refused.set(rule, messageOf(error));
    const rest = group.filter((rule) => !refused.has(rule));
    // A parser names one line and stops.
    const middle = named.length > 1 ? rest.length : (rest.length + 1) >> 1;
    groups.push(rest.slice(0, middle), rest.slice(middle));
  }
  return refused;
}

function trialLines(
  table: IptablesTable,
  chain: string,
  rules: readonly string[],
): readonly string[] {
  const head = [`*${table}`, `:${chain} - [0:0]`];
  // The chains that they lead to may not exist yet, and are not to blame.
  const added = rules.map((rule) => `-A ${chain} ${rule.replace(/ ?-[jg] KUBE-\S+$/, "")}`);
  return [...head, ...added, "COMMIT", ...head, `-X ${chain}`, "COMMIT"];
}

async function refusalOf(trial: Promise<void>): Promise<IptablesError | undefined> {
  try {
    await trial;
    return undefined;
  } catch (error) {
    if (isRefused(error)) return error;
    throw error;
  }
}
