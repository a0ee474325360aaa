// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Prints the results of the benchmark of nftables mode.
 *
 * @module
 */
import type { ConnectFigures } from "../measure_connects.ts";
import { newTable } from "../report.ts";
import { showSpread } from "../statistics.ts";
import type { ChurnFigures } from "./churn.ts";
import type { KernelMemory } from "./kernel_memory.ts";
import { CHANGE_KINDS, CHANGE_NAMES, type TableChanges } from "./measure_changes.ts";
import type { BaselineFigures, LoadFigures } from "./measure_loads.ts";
import type { CountingFigures } from "./measure_counting.ts";
import type { OwnCost } from "./own_cost.ts";
import { sizeName } from "./table_model.ts";

/** Prints full loads, and the cost of a change in kube-proxy's layout. */
export function reportLoads(
  loads: readonly LoadFigures[],
  baselines: readonly BaselineFigures[],
): void {
  const ours = newTable(["full load", "CPU, ms", "wall, ms", "lines", "tool's MiB"]);
  for (const { size, cpuMs, wallMs, lines, peakMiB } of loads) {
    const [cpu, wall] = [showSpread(cpuMs, 0), showSpread(wallMs, 0)];
    ours.push([sizeName(size), cpu, wall, lines, peakMiB.toFixed(0)]);
  }
  const baseline = newTable([
    "kube-proxy's layout",
    "full load, CPU ms",
    "wall, ms",
    "listing of a sync, CPU ms",
    "its write, CPU ms",
  ]);
  for (const { size, cpuMs, wallMs, listCpuMs, writeCpuMs } of baselines) {
    const [list, write] = [showSpread(listCpuMs, 0), showSpread(writeCpuMs, 0)];
    baseline.push([sizeName(size), cpuMs.toFixed(0), wallMs.toFixed(0), list, write]);
  }
  for (const table of [ours, baseline]) console.log(table.toString());
}

/** Prints single changes. */
export function reportChanges(all: readonly TableChanges[]): void {
  const table = newTable(["one change", "Services", "lines", "the tool's CPU, ms", "wall, ms"]);
  for (const kind of CHANGE_KINDS) {
    for (const { size, changes } of all) {
      const { lines, cpuMs, wallMs } = changes[kind];
      const [cpu, wall] = [showSpread(cpuMs, 1), showSpread(wallMs, 1)];
      table.push([CHANGE_NAMES[kind], size.services, showSpread(lines, 0), cpu, wall]);
    }
  }
  console.log(table.toString());
}

/** Prints first packets. */
export function reportConnects(connects: readonly ConnectFigures[]): void {
  const names = Object.keys(connects[0]?.medians ?? {});
  const table = newTable(["first packet, µs; Services", ...names]);
  for (const { services, medians } of connects) {
    table.push([services, ...Object.values(medians).map((median) => median.toFixed(1))]);
  }
  console.log(table.toString());
}

/** Prints the memory of the kernel. */
export function reportMemory(memory: readonly KernelMemory[]): void {
  const table = newTable(["kernel memory, MiB", "ours", "kube-proxy's layout"]);
  for (const { size, ours, baseline } of memory) {
    table.push([sizeName(size), ours.toFixed(1), baseline?.toFixed(1) ?? ""]);
  }
  console.log(table.toString());
}

/** Prints what counting costs. */
export function reportCounting(figures: CountingFigures): void {
  const { services, connects, toService, toOther } = figures;
  const table = newTable([`--service-counters, ${services} Services`, "without", "with"]);
  const { loadCpuMs, countingCpuMs, addCpuMs, readCpuMs } = figures;
  table.push(
    ["full load, the tool's CPU ms", loadCpuMs.toFixed(0), (loadCpuMs + countingCpuMs).toFixed(0)],
    ["a Service more, in the table that counts, CPU ms", "", showSpread(addCpuMs, 1)],
    ["reading, CPU ms", "", showSpread(readCpuMs, 0)],
    ...Object.entries(connects[0].medians).map(([name, median]) => [
      `first packet, ${name}, µs`,
      median.toFixed(1),
      connects[1].medians[name]?.toFixed(1) ?? "",
    ]),
    ["datagram of a known flow to a Service, µs", ...toService.map((each) => showSpread(each))],
    ["datagram to no Service, µs", ...toOther.map((each) => showSpread(each))],
  );
  console.log(table.toString());
}

/** Prints kube-relay's share. */
export function reportOwnCost(own: readonly OwnCost[]): void {
  const table = newTable(["ours; Services", "full load, CPU ms", "one change, CPU ms"]);
  for (const { services, loadCpuMs, changeCpuMs } of own) {
    table.push([services, loadCpuMs.toFixed(0), changeCpuMs.toFixed(2)]);
  }
  console.log(table.toString());
}

/** Prints what came of many changes. */
export function reportChurn(all: readonly ChurnFigures[]): void {
  const table = newTable([
    "1,000 changes a second",
    ...all.map(({ task }) => `${task.minSyncPeriod} between syncs`),
  ]);
  const rows: readonly (readonly [string, number, (figures: ChurnFigures) => number])[] = [
    ["changes", 0, ({ task }) => task.changes],
    ["event to kernel, median ms", 0, ({ medianMs }) => medianMs],
    ["99 of 100, ms", 0, ({ p99Ms }) => p99Ms],
    ["the slowest, ms", 0, ({ mostMs }) => mostMs],
    ["lost", 0, ({ lost }) => lost],
    ["backlog at the end", 0, ({ backlog }) => backlog],
    ["last event sent late by, ms", 0, ({ feedDelayMs }) => feedDelayMs],
    ["largest stall of the event loop, ms", 0, ({ largestStallMs }) => largestStallMs],
    ["CPU of one change, with the tools', ms", 2, ({ cpuMsPerChange }) => cpuMsPerChange],
    ["processors that others used", 1, ({ foreignCores }) => foreignCores],
    ["resident memory after it, MiB", 0, ({ residentMiB }) => residentMiB],
  ];
  for (const [name, digits, of] of rows) {
    table.push([name, ...all.map((figures) => of(figures).toFixed(digits))]);
  }
  console.log(table.toString());
}
