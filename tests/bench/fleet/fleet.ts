// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * What a fleet of nodes costs an API server, with kube-relay and with kube-proxy, whose part is played by
 * the reflectors of client-go with the kinds and selectors of kube-proxy. One process plays many nodes.
 * Two sizes show what grows with the number of nodes. Exits with status 1 if kube-relay opens more
 * connections or reads more bytes than kube-proxy.
 *
 * `deno task bench:fleet [--nodes 50,200] [--services 500] [--changes 100] [--quiet 150]`. Needs root
 * and Go.
 */
import { parseArgs } from "@std/cli/parse-args";
import { runInBenchNamespace } from "../bench_namespace.ts";
import { type Gate, isFailure } from "../gates.ts";
import { newTable, reportGates } from "../report.ts";
import { type Fleet, type FleetFigures, FLEETS, type FleetTask } from "./run_fleet.ts";

const flags = parseArgs(Deno.args, { string: ["nodes", "services", "changes", "quiet"] });
const sizes = String(flags.nodes ?? "50,200").split(",").map(Number);
const [services, changes] = [Number(flags.services ?? 500), Number(flags.changes ?? 100)];
const quietSeconds = Number(flags.quiet ?? 150);

const runs: { readonly fleet: Fleet; readonly nodes: number; readonly figures: FleetFigures }[] =
  [];
for (const nodes of sizes) {
  for (const fleet of FLEETS) {
    console.error(`${nodes} nodes of ${fleet}`);
    const task: FleetTask = { fleet, nodes, services, changes, quietSeconds };
    const program = new URL("./run_fleet.ts", import.meta.url).pathname;
    const figures = await runInBenchNamespace<FleetFigures>(program, [JSON.stringify(task)]);
    runs.push({ fleet, nodes, figures });
  }
}
const ROWS: readonly [string, (figures: FleetFigures, nodes: number) => number, digits: number][] =
  [
    ["connections of a node", ({ connections }, nodes) => connections / nodes, 1],
    ["start: KB to a node", ({ start }, nodes) => start.bytes / nodes / 1e3, 0],
    ["start: CPU ms of the server for a node", ({ start }, nodes) => start.cpu / nodes * 1e3, 1],
    ["memory of the server for a node, KiB", ({ serverMiB }, nodes) => serverMiB / nodes * 1024, 0],
    ["a change: bytes to a node", (run, nodes) => run.changes.bytes / nodes / changes, 0],
    [
      "a change: CPU µs of the server for a node",
      (run, nodes) => run.changes.cpu / nodes / changes * 1e6,
      0,
    ],
    [
      "quiet: bytes a second to a node",
      ({ quiet }, nodes) => quiet.bytes / nodes / quietSeconds,
      1,
    ],
    [
      "quiet: CPU of the server for 1,000 nodes, of a core, %",
      ({ quiet }, nodes) => quiet.cpu / nodes / quietSeconds * 1e5,
      1,
    ],
    ["restart of the server: KB to a node", ({ restart }, nodes) => restart.bytes / nodes / 1e3, 1],
    [
      "restart of the server: CPU ms for a node",
      ({ restart }, nodes) => restart.cpu / nodes * 1e3,
      1,
    ],
    ["restart of the server: seconds until all are back", ({ secondsToAll }) => secondsToAll, 1],
    [
      "restart of the server: most connections in a second",
      ({ busiestSecond }) => busiestSecond,
      0,
    ],
  ];
const table = newTable([
  `${services} Services, ${changes} changes`,
  ...runs.map(({ fleet, nodes }) => `${fleet}, ${nodes}`),
]);
for (const [name, valueOf, digits] of ROWS) {
  table.push([name, ...runs.map(({ figures, nodes }) => valueOf(figures, nodes).toFixed(digits))]);
}
console.log(table.toString());

const gates: Gate[] = sizes.flatMap((nodes) => {
  const [ours, theirs] = FLEETS.map((fleet) =>
    runs.find((run) => run.fleet === fleet && run.nodes === nodes)!.figures
  );
  const gate = (name: string, valueOf: (figures: FleetFigures) => number, atMost: number) => ({
    name: `${nodes} nodes: ${name}, of client-go's`,
    ...{ value: valueOf(ours!) / valueOf(theirs!), atMost },
  });
  return [
    gate("connections", ({ connections }) => connections, 1),
    gate("bytes of a start", ({ start }) => start.bytes, 1.1),
    gate("bytes of a change", ({ changes }) => changes.bytes, 1.1),
  ];
});
reportGates(gates);
if (gates.some(isFailure)) Deno.exitCode = 1;
