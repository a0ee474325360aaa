// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * From the start of kube-relay to the last of many Services, in each mode of rules, on real API
 * machinery; next to it what two baselines take: a program that parses the same lists and keeps
 * nothing, and the kernel's tool with the same rules. Exits with status 1 if a limit is exceeded.
 *
 * `deno task bench:start [--services 10000] [--modes nftables,iptables,iptables-legacy]
 * [--changes 20000]`: with changes, memory is measured over so many changes of endpoints.
 * `KUBE_RELAY=dist/kube-relay` takes the built executable. Needs root, nft, iptables and Go.
 */
import { parseArgs } from "@std/cli/parse-args";
import { runInBenchNamespace } from "../bench_namespace.ts";
import { type Gate, isFailure } from "../gates.ts";
import { newTable, reportGates } from "../report.ts";
import { CHANGES_PER_LOOK, growthGate } from "./many_changes.ts";
import {
  STARTED_MODES,
  type StartedMode,
  type StartFigures,
  type StartTask,
  sumOf,
} from "./run_start.ts";

const flags = parseArgs(Deno.args, { string: ["services", "modes", "changes"] });
const services = Number(flags.services ?? 10_000);
const changes = Number(flags.changes ?? 0);
const modes = flags.modes === undefined
  ? STARTED_MODES
  : STARTED_MODES.filter((mode) => String(flags.modes).split(",").includes(mode));

/** Enough for a count that does not depend on the number of Services. */
const FEW = 100;

/** Most programs of a start, by mode: features and facts of the machine, tables, rules. */
const MOST_PROGRAMS: Readonly<Record<StartedMode, number>> = {
  nftables: 24,
  iptables: 25,
  "iptables-legacy": 31,
};
/** Most programs for 100 changes, one after the other: one holds on in nftables mode. */
const MOST_CHANGE_PROGRAMS: Readonly<Record<StartedMode, number>> = {
  nftables: 40,
  iptables: 150,
  "iptables-legacy": 150,
};
/** Most segments to the API server for each MiB from it: requests, and window updates. */
const MOST_SEGMENTS_PER_MIB = 20;
/**
 * Most CPU of kube-relay, as a multiple of that of a program that parses the lists as JSON and keeps
 * nothing; 7 to 9 were measured at 4,000 and 10,000 Services.
 */
const MOST_CPU = 10;
const COUNT = { digits: 0 };

const started = new Map<StartedMode, StartFigures>();
const gates: Gate[] = [];
for (const mode of modes) {
  console.error(`${mode}: ${services} Services`);
  const figures = await measureStart({ mode, services, changes });
  started.set(mode, figures);
  const counts = await measureStart({ mode, services: FEW, counts: true });
  gates.push(...gatesOf(mode, figures, counts));
}
report();
reportGates(gates);
if (gates.some(isFailure)) Deno.exitCode = 1;

function measureStart(task: StartTask): Promise<StartFigures> {
  const program = new URL("./run_start.ts", import.meta.url).pathname;
  return runInBenchNamespace(program, [JSON.stringify(task)]);
}

function gatesOf(
  mode: StartedMode,
  figures: StartFigures,
  { programs = {}, hundredChangesPrograms = NaN }: StartFigures,
): readonly Gate[] {
  const { traffic: { receivedBytes, sentSegments }, ownCpuSeconds, decoding } = figures;
  const { memoryOverChanges: memory } = figures;
  return [
    ...(memory
      ? [growthGate(`${mode}: memory of the second half / of the first half`, memory)]
      : []),
    {
      name: `${mode}: programs started`,
      value: sumOf(programs),
      atMost: MOST_PROGRAMS[mode],
      ...COUNT,
    },
    {
      name: `${mode}: programs for 100 changes`,
      value: hundredChangesPrograms,
      atMost: MOST_CHANGE_PROGRAMS[mode],
      ...COUNT,
    },
    {
      name: `${mode}: segments to the API server for each MiB from it`,
      value: sentSegments / (receivedBytes / 2 ** 20),
      atMost: MOST_SEGMENTS_PER_MIB,
    },
    {
      name: `${mode}: own CPU / CPU of parsing the lists`,
      value: ownCpuSeconds / decoding.cpuSeconds,
      atMost: MOST_CPU,
    },
  ];
}

function report(): void {
  const table = newTable([`${services} Services`, ...started.keys()]);
  const row = (name: string, valueOf: (figures: StartFigures) => number, digits: number) =>
    table.push([name, ...[...started.values()].map((each) => valueOf(each).toFixed(digits))]);
  row("start to the last Service, s", ({ secondsToProgrammed }) => secondsToProgrammed, 2);
  row("own CPU until then, s", ({ ownCpuSeconds }) => ownCpuSeconds, 2);
  row("CPU of the tools until then, s", ({ toolCpuSeconds }) => toolCpuSeconds, 2);
  row("parsing the lists: time, s", ({ decoding }) => decoding.seconds, 2);
  row("parsing the lists: CPU, s", ({ decoding }) => decoding.cpuSeconds, 2);
  row("the tool alone: time, s", ({ toolLoad }) => toolLoad.seconds, 2);
  row("the tool alone: CPU, s", ({ toolLoad }) => toolLoad.cpuSeconds, 2);
  row("from the API server, MiB", ({ traffic }) => traffic.receivedBytes / 2 ** 20, 1);
  row("segments to it", ({ traffic }) => traffic.sentSegments, 0);
  row("a change: sync, ms", ({ changeMs }) => changeMs, 0);
  row("100 changes: CPU, s", ({ hundredChangesCpuSeconds: seconds }) => seconds, 2);
  row("resident after it, MiB", ({ residentMiB }) => residentMiB, 0);
  row("resident at most, MiB", ({ peakMiB }) => peakMiB, 0);
  row("half a minute later, MiB", ({ restingMiB }) => restingMiB ?? NaN, 0);
  const looks = Math.ceil(changes / CHANGES_PER_LOOK);
  for (let look = 0; look < looks; look++) {
    const made = Math.min(changes, (look + 1) * CHANGES_PER_LOOK);
    row(`after ${made} changes, MiB`, ({ memoryOverChanges: memory = [] }) => memory[look + 1]!, 0);
  }
  console.log(table.toString());
}
