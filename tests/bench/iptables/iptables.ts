// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Compares the layout of the iptables mode with that of kube-proxy, with the tool alone: full
 * loads, single changes, first packets; the share of kube-relay in a full load; and a start on real
 * API machinery. Exits with status 1 if a limit is exceeded.
 *
 * `deno task bench:iptables [--quick]`. Needs root and both programs called iptables; the start
 * needs Go, or the program of tests/apiserver built before.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { buildApiserver } from "../../conformance/build_apiserver.ts";
import { showSpread } from "../statistics.ts";
import type { IptablesVariant } from "./iptables_tool.ts";
import { isFailure } from "../gates.ts";
import { newTable, reportGates, reportStart } from "../report.ts";
import { type BenchForm, measureVariant, type VariantFigures } from "./measure_variant.ts";
import { measureOwnCost, type OwnCost } from "./own_cost.ts";
import { costGates, startGates, variantGates } from "./demands.ts";
import { measureStart } from "../start/measure_start.ts";
import type { StartFigures } from "../start/run_start.ts";

const VARIANTS: readonly IptablesVariant[] = ["nft", "legacy"];

/** kube-proxy's layout takes iptables-nft a minute and more at 10,000: once, and not in the quick form. */
const FULL: BenchForm = {
  sizes: [1000, 5000, 10_000],
  baselineSizes: { nft: [1000, 5000, 10_000], legacy: [1000, 5000, 10_000] },
  loads: 5,
  changes: 30,
  partials: 7,
  turns: 40,
};
const QUICK: BenchForm = {
  sizes: [5000, 10_000],
  baselineSizes: { nft: [5000], legacy: [5000, 10_000] },
  loads: 3,
  changes: 30,
  partials: 3,
  turns: 20,
};

/** Services of the start on real API machinery: 10,000 take half a minute to create. */
const STARTED = { full: 10_000, quick: 1000 };

const { quick } = parseArgs(Deno.args, { boolean: ["quick"] });
const form = quick ? QUICK : FULL;
const figures: VariantFigures[] = [];
for (const variant of VARIANTS) {
  figures.push(await measureVariant(variant, form, (what) => console.error(what)));
}
const largest = form.sizes.at(-1)!;
const own = await measureOwnCost(largest);
report(figures, own);
const start = await measureStartIfPossible(quick ? STARTED.quick : STARTED.full);
if (start) reportStart(start);
const gates = [
  ...figures.flatMap(variantGates),
  ...figures.flatMap((each) => costGates(each, own)),
  ...(start ? startGates(start) : []),
];
reportGates(gates);
if (gates.some(isFailure)) Deno.exitCode = 1;

async function measureStartIfPossible(services: number): Promise<StartFigures | undefined> {
  if (await buildApiserver() !== undefined) {
    console.error("a start on real API machinery");
    return await measureStart({ mode: "iptables", services });
  }
  console.error("No start is measured: tests/apiserver cannot be built, since Go is missing");
  if (Deno.env.get("REQUIRE_ALL") === "1") Deno.exitCode = 1;
  return undefined;
}

function report(all: readonly VariantFigures[], { cpuMs, residentMiB }: OwnCost): void {
  const loads = newTable(["full load", "Services", "CPU, ms", "wall, ms", "lines", "MiB"]);
  const changes = newTable([
    "one change",
    "Services",
    "endpoint, CPU ms",
    "Service, CPU ms",
    "most lines",
    "least write, CPU ms",
  ]);
  const connects = newTable([
    "first packet, µs",
    "Services",
    "first",
    "middle",
    "last",
    "no Service",
  ]);
  for (const { variant, sizes, baselines, changes: changed, connects: connected } of all) {
    for (const { services, loadCpuMs, loadWallMs, lines, peakMiB } of sizes) {
      const [cpu, wall] = [showSpread(loadCpuMs, 0), showSpread(loadWallMs, 0)];
      loads.push([variant, services, cpu, wall, lines, peakMiB.toFixed(0)]);
    }
    for (const { services, loadCpuMs, loadWallMs, partialCpuMs } of baselines) {
      const name = `${variant}, kube-proxy's`;
      loads.push([name, services, showSpread(loadCpuMs, 0), showSpread(loadWallMs, 0), "", ""]);
      changes.push([name, services, showSpread(partialCpuMs, 1), "", "", ""]);
    }
    for (const { services, changeCpuMs, addCpuMs, leastCpuMs, mostLines } of changed) {
      const [change, add] = [showSpread(changeCpuMs, 1), showSpread(addCpuMs, 1)];
      changes.push([variant, services, change, add, mostLines, showSpread(leastCpuMs, 1)]);
    }
    for (const { services, medians } of connected) {
      const times = Object.values(medians).map((median) => median.toFixed(1));
      connects.push([variant, services, ...times]);
    }
  }
  for (const table of [loads, changes, connects]) console.log(table.toString());
  console.log(
    `Ours of a full load of ${largest}: ${cpuMs.toFixed(0)} ms of CPU, ` +
      `${residentMiB.toFixed(0)} MiB resident.`,
  );
}
