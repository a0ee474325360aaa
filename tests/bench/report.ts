// deno-lint-ignore-file no-console -- what it prints is what it is for
/** Prints the results of the kernel modes' benchmarks. */
import Table from "cli-table3";
import { type Gate, gateRow, isFailure } from "./gates.ts";

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
