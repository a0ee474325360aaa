import type { Clock } from "../../lib/os/clock.ts";
import type { ComparisonScope } from "../../lib/proxy/service_mode.ts";
import type {
  DataPlaneDifference,
  DataPlaneRepair,
} from "../../lib/proxy/data_plane_difference.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import type { CodedTable, NftRunner } from "../netfilter/nft/nft_runner.ts";
import type { NftTransaction } from "../netfilter/nft/nft_transaction.ts";
import { servicesTable } from "./containers.ts";
import { fillLayout } from "../netfilter/wanted_rules.ts";
import { compareTable, type TableComparison } from "./compare.ts";
import { readOrder, readSlots } from "./endpoint_order_text.ts";
import { NftablesLayout } from "./layout.ts";
import type { NftablesRenderOptions } from "./render_options.ts";
import { wantedState, type WantedStateContext } from "./wanted_state.ts";

interface KernelComparisonDependencies {
  readonly clock: Clock;
  readonly runner: Pick<NftRunner, "readRules" | "readWithCode" | "ruleCode" | "write">;
}

interface KernelComparisonInput {
  readonly plan: ProxyPlan;
  readonly options: NftablesRenderOptions;
  /** Has {@linkcode orderTexts} of the process that writes the table; `undefined` = they are not known. */
  readonly orders: (() => Promise<readonly string[]>) | undefined;
  readonly scope?: ComparisonScope | undefined;
}

/** Reads the table and compares it. Writes nothing. Throws an NftError. */
export async function compareKernel(
  { clock, runner }: KernelComparisonDependencies,
  { plan, options, orders, scope }: KernelComparisonInput,
): Promise<TableComparison> {
  const layout = new NftablesLayout(plan.shared, options);
  const want = (context: WantedStateContext) => inSteps({ clock }, wantedState(layout, context));
  const prepare = async () => {
    await fillLayout(layout, plan, { clock, quarantined: scope?.quarantined });
    if (orders === undefined) return undefined;
    // If the order is known, the elements that were found are not needed for it.
    const words = await orders();
    for (const [key, slots] of words.flatMap(readSlots)) layout.setSlots(key, slots);
    return await want({ orders: new Map(words.map(readOrder)), found: undefined });
  };
  const [found, prepared] = await Promise.all([runner.readWithCode(), prepare()]);
  const wanted = prepared ?? await want({ orders: undefined, found: found?.elements });
  const code = await runner.ruleCode(servicesTable(plan.family), wanted.chains.values());
  const compare = (found: CodedTable | undefined) =>
    inSteps({ clock }, compareTable({ options, wanted, code, found, keys: scope?.keys }));
  const comparison = await compare(found);
  if (!found || !comparison.differences.some(showsProtocol)) return comparison;
  return await compare(withPrintedRules(found, await runner.readRules()));
}

/** Foreign or hand-written rules may contain protocol numbers; rules of this mode do not. */
function showsProtocol({ object, found = "" }: DataPlaneDifference): boolean {
  return (object === "chain" || object === "rule") && NAMES_PROTOCOL.test(found);
}

/** The text that nft prints before the number of a protocol. */
const NAMES_PROTOCOL = /proto|nexthdr/;

/**
 * Uses the printed rules, since the first read has protocol numbers. A chain that changed between
 * the reads keeps its first text.
 */
function withPrintedRules(found: CodedTable, printed: CodedTable["rules"] = new Map()): CodedTable {
  const lines = (text: string) => text.split("\n").length;
  const rules = [...found.rules].map(([chain, text]) => {
    const print = printed.get(chain) ?? "";
    return [chain, lines(print) === lines(text) ? print : text] as const;
  });
  return { ...found, rules: new Map(rules) };
}

/** Removals come last, and another comparison verifies the result. */
const MAX_PASSES = 3;

/** Writes only the differences, then compares again. Throws an NftError. */
export async function repairKernel(
  dependencies: KernelComparisonDependencies,
  input: KernelComparisonInput,
): Promise<DataPlaneRepair> {
  const { runner } = dependencies;
  const first = await compareKernel(dependencies, input);
  let comparison = first;
  const operations = { transactions: 0, lines: 0 };
  const write = async (transaction: NftTransaction) => {
    await runner.write(transaction);
    operations.transactions++;
    operations.lines += transaction.lineCount;
  };
  for (let pass = 0; pass < MAX_PASSES && comparison.differences.length > 0; pass++) {
    if (!comparison.changes.isEmpty) await write(comparison.changes);
    if (!comparison.removal.isEmpty) await write(comparison.removal);
    comparison = await compareKernel(dependencies, input);
  }
  return { found: first.differences, left: comparison.differences, operations };
}
