// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Prints the results of the kernel modes' benchmarks.
 *
 * @module
 */
import Table from "cli-table3";
import { type Gate, gateRow, isFailure } from "./gates.ts";
import type { StartFigures } from "./start/run_start.ts";

/** Prints the figures of a start. */
export function reportStart(figures: StartFigures): void {
  const table = newTable(["start on real API machinery", `${figures.services} Services`]);
  const rows: readonly (readonly [string, number | undefined, number])[] = [
    ["start of the process to all programmed, s", figures.secondsToProgrammed, 1],
    ["of that the sync, ms", figures.syncMs, 0],
    ["CPU until then, s", figures.ownCpuSeconds, 1],
    ["CPU of the tools, s", figures.toolCpuSeconds, 1],
    ["resident memory, MiB", figures.residentMiB, 0],
    ["most that it was, MiB", figures.peakMiB, 0],
    ["half a minute later, MiB", figures.restingMiB, 0],
    ["largest stall of the event loop, ms", figures.largestStallMs, 0],
    ["sync of one changed endpoint, ms", figures.changeMs, 0],
    ["most lines of one", figures.changeLines, 0],
  ];
  for (const [name, value, digits] of rows) {
    if (value !== undefined) table.push([name, value.toFixed(digits)]);
  }
  console.log(table.toString());
}

/** Prints demands, and which of them were missed. */
export function reportGates(gates: readonly Gate[]): void {
  const table = newTable(["demand", "measured", "at most", ""]);
  for (const gate of gates) table.push(gateRow(gate));
  console.log(table.toString());
  const missed = gates.filter(isFailure).map(({ name }) => name);
  console.log(
    missed.length === 0 ? "Nothing that was demanded is missed." : `Missed: ${missed.join("; ")}.`,
  );
}

/** A table with these headings. */
export function newTable(head: readonly string[]): Table.Table {
  return new Table({ head: [...head], style: { head: [], border: [] } });
}
