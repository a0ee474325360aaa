/**
 * Single changes, among few Services and among many.
 *
 * @module
 */
import { type Spread, spreadOf } from "../statistics.ts";
import type { BenchTable, TableWrite } from "./bench_table.ts";
import type { TableModel, TableSize } from "./table_model.ts";

/** The changes that are measured; of each pair the second takes the first one back. */
export const CHANGE_KINDS = ["endpoint", "grow", "shrink", "add", "remove"] as const;

/** One of {@linkcode CHANGE_KINDS}. */
export type ChangeKind = typeof CHANGE_KINDS[number];

/** The figures of changes of one kind. */
export interface ChangeFigures {
  readonly lines: Spread;
  readonly cpuMs: Spread;
  readonly wallMs: Spread;
}

/** The figures of changes in one table. */
export interface TableChanges {
  readonly size: TableSize;
  readonly changes: Readonly<Record<ChangeKind, ChangeFigures>>;
}

/** The name of each kind. */
export const CHANGE_NAMES: Readonly<Record<ChangeKind, string>> = {
  endpoint: "another endpoint",
  grow: "an endpoint more",
  shrink: "an endpoint less",
  add: "a Service added",
  remove: "a Service deleted",
};

/** Takes turns between the tables. */
export async function measureChanges(
  tables: readonly BenchTable[],
  rounds: number,
): Promise<readonly TableChanges[]> {
  const taken = tables.map((table) => ({ table, writes: writesByKind() }));
  // The first Service with one endpoint more brings a chain along, which stays.
  for (const table of tables) {
    await table.write((model) => model.grow(0));
    await table.write((model) => model.shrink(0));
  }
  for (let round = 0; round < rounds; round++) {
    for (const { table, writes } of taken) {
      const index = (round * 997) % table.model.size.services;
      for (const kind of CHANGE_KINDS) {
        writes[kind].push(await table.write((model) => change(model, kind, index)));
      }
    }
  }
  return taken.map(({ table, writes }) => ({
    size: table.model.size,
    changes: figuresByKind((kind) => figuresOf(writes[kind])),
  }));
}

function change(model: TableModel, kind: ChangeKind, index: number): void {
  switch (kind) {
    case "endpoint":
      return model.change(index);
    case "grow":
      return model.grow(index);
    case "shrink":
      return model.shrink(index);
    case "add":
      return model.add();
    case "remove":
      return model.remove();
  }
}

function writesByKind(): Record<ChangeKind, TableWrite[]> {
  return { endpoint: [], grow: [], shrink: [], add: [], remove: [] };
}

function figuresByKind<T>(of: (kind: ChangeKind) => T): Record<ChangeKind, T> {
  return {
    endpoint: of("endpoint"),
    grow: of("grow"),
    shrink: of("shrink"),
    add: of("add"),
    remove: of("remove"),
  };
}

function figuresOf(writes: readonly TableWrite[]): ChangeFigures {
  return {
    lines: spreadOf(writes.map(({ lines }) => lines)),
    cpuMs: spreadOf(writes.map(({ run }) => run.cpuMs)),
    wallMs: spreadOf(writes.map(({ run }) => run.wallMs)),
  };
}
