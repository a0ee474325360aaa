// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Compares the layout of the nftables mode with that of kube-proxy, with the tool alone: full
 * loads, single changes, first packets, memory; the share of kube-relay; a start on real API
 * machinery; and a thousand changes a second. Exits with status 1 if a limit is exceeded.
 *
 * `deno task bench:nftables [--quick | --all]`; with `--all` kube-proxy's layout is loaded with
 * 44,000 Services, too, which takes hours. Needs root and nft; the start needs Go, or the program
 * of tests/apiserver built before.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { buildApiserver } from "../../conformance/build_apiserver.ts";
import { runInBenchNamespace } from "../bench_namespace.ts";
import { type Gate, isFailure, isMet } from "../gates.ts";
import { type ConnectFigures, type ConnectPlace, measureConnects } from "../measure_connects.ts";
import { measureStart } from "../start/measure_start.ts";
import { reportGates, reportStart } from "../report.ts";
import { BenchTable } from "./bench_table.ts";
import type { ChurnFigures, ChurnTask } from "./churn.ts";
import {
  changeGates,
  churnGates,
  connectGates,
  costGates,
  countingGates,
  FOREIGN_CORES,
  loadGates,
  memoryGates,
  startGates,
} from "./demands.ts";
import { type KernelMemory, measureKernelMemory } from "./kernel_memory.ts";
import { measureChanges, type TableChanges } from "./measure_changes.ts";
import { type BaselineFigures, measureBaseline, measureLoads } from "./measure_loads.ts";
import { measureCounting } from "./measure_counting.ts";
import { measureOwnCost, type OwnCost } from "./own_cost.ts";
import {
  reportChanges,
  reportChurn,
  reportConnects,
  reportCounting,
  reportLoads,
  reportMemory,
  reportOwnCost,
} from "./report_layout.ts";
import type { TableSize } from "./table_model.ts";

/** The extent of the measurement. */
interface BenchForm {
  readonly sizes: readonly TableSize[];
  /** Sizes at which kube-proxy's layout is loaded as well. */
  readonly baselines: readonly TableSize[];
  /** Full loads of each size. */
  readonly loads: number;
  /** Changes of each kind. */
  readonly changes: number;
  /** Syncs of kube-proxy. */
  readonly partials: number;
  /** Turns between the namespaces. */
  readonly turns: number;
  /** Services of a start on real API machinery, which takes ten milliseconds and more to make one. */
  readonly starts: readonly number[];
  /** The number of Services that change, of 10,000. */
  readonly churn: number;
}

const SIZES = [1000, 5000, 10_000, 44_000].map((services) => ({ services, endpoints: 2 }));
const MANY_ENDPOINTS: TableSize = { services: 5000, endpoints: 50 };
const FULL: BenchForm = {
  sizes: [...SIZES, MANY_ENDPOINTS],
  baselines: [...SIZES.slice(0, 3), MANY_ENDPOINTS],
  loads: 5,
  changes: 40,
  partials: 3,
  turns: 60,
  starts: [10_000, 44_000],
  churn: 10_000,
};
const QUICK: BenchForm = {
  sizes: SIZES.slice(2),
  baselines: SIZES.slice(2, 3),
  loads: 2,
  changes: 20,
  partials: 1,
  turns: 25,
  starts: [1000],
  churn: 2000,
};

/** Among so few Services a first packet has to take as long as among all. */
const TINY = 10;
/** Among so few Services a change has to cost as much as among all. */
const SMALL = 100;
const LARGE = 44_000;
/** Further runs if other programs use too much of the machine. */
const RETRIES = 2;
const CHURNED_SERVICES = 10_000;
/** Shortest time between two syncs: almost none, and the default. */
const PERIODS = [["10ms", 10], ["1s", 1000]] as const;
/** Sizes up to which kernel memory is compared with that of kube-proxy's layout. */
const COMPARED_MEMORY = 5000;

/** The largest in kube-proxy's layout takes the tool minutes to load and a quarter of an hour to list. */
const ALL: BenchForm = { ...FULL, baselines: [...SIZES, MANY_ENDPOINTS] };

const { quick, all } = parseArgs(Deno.args, { boolean: ["quick", "all"] });
const form = quick ? QUICK : all ? ALL : FULL;
const gates: Gate[] = [
  ...await runMemory(),
  ...await runLayout(),
  ...await runCounting(),
  ...await runStarts(),
  ...await runChurn(),
];
reportGates(gates);
if (gates.some(isFailure)) Deno.exitCode = 1;

/** Comes first, because memory that is freed later would reduce the result. */
async function runMemory(): Promise<readonly Gate[]> {
  tell("kernel memory");
  const sizes = quick ? SIZES.slice(1, 2) : form.sizes;
  const memory: readonly KernelMemory[] = await measureKernelMemory(sizes, {
    baselineUpTo: COMPARED_MEMORY,
  });
  reportMemory(memory);
  return memoryGates(memory);
}

async function runLayout(): Promise<readonly Gate[]> {
  tell("full loads");
  const loads = await measureLoads(form.sizes, form.loads);
  const baselines: BaselineFigures[] = [];
  for (const size of form.baselines) {
    tell(`${size.services} Services of ${size.endpoints} in kube-proxy's layout`);
    baselines.push(await measureBaseline(size, form.partials));
  }
  reportLoads(loads, baselines);
  const { changes, connects } = await runTables();
  tell("our own cost");
  const own: OwnCost[] = [];
  for (const services of [SMALL, 10_000, LARGE]) own.push(await measureOwnCost(services));
  reportOwnCost(own);
  const [few, , many] = connects;
  return [
    ...loadGates(loads, baselines),
    ...changeGates(changes),
    ...costGates(own, { loads, changes }),
    ...connectGates(few!, many!),
  ];
}

/** Runs the measurements in tables that stay. */
async function runTables(): Promise<{
  readonly changes: readonly TableChanges[];
  readonly connects: readonly ConnectFigures[];
}> {
  tell("changes and connections");
  // deno-lint-ignore no-undef -- the linter does not know it yet
  await using tables = new AsyncDisposableStack();
  const create = async (services: number) =>
    tables.use(await BenchTable.create({ services, endpoints: 2 }));
  const [tiny, twin] = [await create(TINY), await create(TINY)];
  const [small, large] = [await create(SMALL), await create(LARGE)];
  const connects = await measureConnects([tiny, twin, large].map(placeOf), form.turns);
  reportConnects(connects);
  const changes = await measureChanges([small, large], form.changes);
  reportChanges(changes);
  return { changes, connects };
}

async function runCounting(): Promise<readonly Gate[]> {
  tell("counters of Services");
  const figures = await measureCounting({ services: 10_000, turns: form.turns });
  reportCounting(figures);
  return countingGates(figures);
}

async function runStarts(): Promise<readonly Gate[]> {
  if (await buildApiserver() === undefined) {
    tell("No start is measured: tests/apiserver cannot be built, since Go is missing");
    if (Deno.env.get("REQUIRE_ALL") === "1") Deno.exitCode = 1;
    return [];
  }
  const found: Gate[] = [];
  for (const services of form.starts) {
    tell(`a start on real API machinery with ${services} Services`);
    const figures = await measureStart({ mode: "nftables", services });
    reportStart(figures);
    found.push(...startGates(figures));
  }
  return found;
}

async function runChurn(): Promise<readonly Gate[]> {
  const found: Gate[] = [];
  const all: ChurnFigures[] = [];
  for (const [minSyncPeriod, periodMs] of PERIODS) {
    tell(`1,000 changes a second, ${minSyncPeriod} between two syncs`);
    const task: ChurnTask = { services: CHURNED_SERVICES, changes: form.churn, minSyncPeriod };
    const program = new URL("./churn.ts", import.meta.url).pathname;
    const run = () => runInBenchNamespace<ChurnFigures>(program, [JSON.stringify(task)]);
    let figures = await run();
    for (let again = 0; again < RETRIES && isUnjudged(figures, periodMs); again++) {
      tell("once more, since others use the machine");
      figures = await run();
    }
    all.push(figures);
    found.push(...churnGates(figures, periodMs));
  }
  reportChurn(all);
  return found;
}

function isUnjudged(figures: ChurnFigures, periodMs: number): boolean {
  return figures.foreignCores > FOREIGN_CORES &&
    churnGates(figures, periodMs).some((gate) => !isMet(gate));
}

function placeOf({ namespace, model }: BenchTable): ConnectPlace {
  return { namespace, services: model.size.services };
}

function tell(what: string): void {
  console.error(what);
}
