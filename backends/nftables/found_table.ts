/**
 * The table of one family as the kernel holds it, with all that tells it from the wanted one.
 *
 * @module
 */
import type { TableReading } from "./applied_table.ts";
import type { Container } from "./containers.ts";
import type { RuleCode } from "./rule_code.ts";

/** A table of ours as it was found. */
export interface FoundTable extends TableReading {
  /** What the rules of each chain do. */
  readonly code: RuleCode;
  /** Sets and maps, those of other versions and of others included. */
  readonly kinds: ReadonlyMap<string, Container["kind"]>;
  /** Whether the kernel passes over all of it. */
  readonly isDormant: boolean;
}

/** Priorities that nft has words for. Those of other families than ours are left out. */
const PRIORITIES: Readonly<Record<string, number>> = {
  raw: -300,
  mangle: -150,
  dstnat: -100,
  filter: 0,
  security: 50,
  srcnat: 100,
};

/**
 * What is said of where the kernel enters a chain, in one spelling: `type nat hook prerouting priority
 * dstnat + 10; policy accept;` is `type nat hook prerouting priority -90 policy accept`.
 */
export function normalHook(text: string): string {
  const [, head = "", word = "", sign = "", offset = "", policy = "accept"] =
    /^(type \S+ hook \S+(?: device \S+)?) priority (-?\w+)(?: ([+-]) (\d+))?;?(?: policy (\w+);?)?/
      .exec(text.trim()) ?? [];
  if (head === "") return text.trim();
  const base = PRIORITIES[word] ?? Number(word);
  const priority = base + Number(`${sign}${offset || 0}`);
  return `${head} priority ${priority} policy ${policy}`;
}

/** Takes what a chain was printed as apart: its hook, if it has one, and its rules. */
export function readChainPrint(
  print: string,
): { readonly hook: string | undefined; readonly rules: readonly string[] } {
  const lines = print.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  const [first] = lines;
  if (first === undefined || !/^type \S+ hook /.test(first)) {
    return { hook: undefined, rules: lines };
  }
  return { hook: normalHook(first), rules: lines.slice(1) };
}
