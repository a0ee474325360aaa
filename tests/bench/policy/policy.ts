// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * NetworkPolicy with 10,000 pods, 110 of them local, and 1,000 policies of five rules: the rules of every
 * tool, events of pods, the rules that a first packet meets, and memory. Exits with status 1 when a
 * demand is not met.
 *
 * `deno task bench:policy [--quick]`. Needs root, nft, ipset and both variants of iptables.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { runInBenchNamespace } from "../bench_namespace.ts";
import { isFailure } from "../gates.ts";
import { newTable, reportGates } from "../report.ts";
import { showSpread, spreadOf } from "../statistics.ts";
import { memoryGates, ruleGates } from "./demands.ts";
import {
  EVENT_KINDS,
  type OwnFigures,
  type PolicyTool,
  type RulesTask,
  type StepCost,
  TOOL_NAMES,
} from "./rules_figures.ts";
import { measureMemory, type MemoryFigures } from "./memory.ts";

const MEASURE_RULES = new URL("./measure_rules.ts", import.meta.url).pathname;
const TOOLS: readonly PolicyTool[] = ["nftables", "nft", "legacy"];

const { quick } = parseArgs(Deno.args, { boolean: ["quick"] });
const form = quick ? { loads: 3, events: 20 } : { loads: 5, events: 30 };

const own: OwnFigures[] = [];
for (const tool of TOOLS) {
  console.error(`rules of ${TOOL_NAMES[tool]}`);
  own.push(await measure({ tool, ...form }));
}
console.error("memory");
const memory = await measureMemory();
report(own, memory);
const gates = [...ruleGates(own), ...memoryGates(memory)];
reportGates(gates);
if (gates.some(isFailure)) Deno.exitCode = 1;

function measure(task: RulesTask): Promise<OwnFigures> {
  return runInBenchNamespace(MEASURE_RULES, [JSON.stringify(task)]);
}

function report(own: readonly OwnFigures[], memory: MemoryFigures): void {
  const loads = newTable(["first sync", "policies", "lines", "tools, ms", "ours, ms", "wall, ms"]);
  const events = newTable(["event", "policies", "lines", "tools, ms", "ours, ms", "wall, ms"]);
  const visits = newTable(["rules met by a first packet", "10 policies", "1,000 policies"]);
  for (const { tool, sizes, largest } of own) {
    const name = TOOL_NAMES[tool];
    for (const { policies, loads: costs } of sizes) {
      loads.push([name, policies, ...costCells(costs)]);
    }
    loads.push([name, "2,000, all local", ...costCells(largest.loads)]);
    for (const kind of EVENT_KINDS) {
      for (const { policies, events: costs } of sizes) {
        events.push([`${name}, ${kind}`, policies, ...costCells(costs[kind])]);
      }
    }
    events.push([`${name}, a policy changes`, "2,000, all local", ...costCells(largest.changes)]);
    visits.push([name, ...sizes.map(({ visitedRules }) => visitedRules.toFixed(1))]);
  }
  for (const table of [loads, events, visits]) console.log(table.toString());
  const { podMb, allMb, planMs, eventMs } = memory;
  console.log(
    `10,000 pods take ${podMb.toFixed(1)} MB, with 1,000 policies and plans of both families ` +
      `${allMb.toFixed(1)} MB. A first plan takes ${planMs.toFixed(0)} ms of CPU, ` +
      `an event of a pod ${eventMs.toFixed(3)} ms.`,
  );
}

function costCells(costs: readonly StepCost[]): readonly string[] {
  const cell = (part: keyof StepCost, digits: number) =>
    showSpread(spreadOf(costs.map((cost) => cost[part])), digits);
  return [cell("lines", 0), cell("toolMs", 1), cell("ownMs", 1), cell("wallMs", 1)];
}
