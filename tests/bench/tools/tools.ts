// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Measures the cost of the tools that read from a node with 10,000 Services of 2 endpoints each,
 * and the longest turn of the node's own event loop meanwhile.
 *
 * `deno task bench:tools [--services 10000] [--runs 3]`; `KUBE_RELAY=dist/kube-relay` takes the
 * built executable for the tools. The node is this process, in iptables mode on a fake machine.
 *
 * CPU time is compared with that of `version`, which does nothing, so that a slow or busy machine
 * exceeds no limit. If `version` takes 0.1 s, ten times that is a second.
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import Table from "cli-table3";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import { ADDRESSES } from "../../support/builders/address_plan.ts";
import { DumpedRelay } from "../../support/stages/dumped_relay.ts";
import { FakeIptablesMachine } from "../../support/fakes/fake_iptables_machine.ts";
import { type Gate, gateRow, isFailure } from "../gates.ts";
import { writeManifests } from "./manifests.ts";
import { toolCpuMs } from "./tool_cpu.ts";
import { BENCH_TOOLS, type ToolScene } from "./tool_table.ts";
import { worstTurn } from "./worst_turn.ts";

const flags = parseArgs(Deno.args, { string: ["services", "runs"] });
const SERVICES = Number(flags.services ?? 10_000);
const RUNS = Number(flags.runs ?? 3);

/**
 * Most CPU time of a turn of the node's event loop, in milliseconds. The aim is 10, which a collection
 * of garbage alone may take where two benches share the cores.
 */
const AT_MOST_TURN_MS = 40;

const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
try {
  await writeManifests(`${folder}/manifests`, SERVICES);
  await using relay = await DumpedRelay.start({
    mode: "iptables",
    commands: furnished(),
    flags: [`--manifests=${folder}/manifests`],
    addresses: [ADDRESSES.IPv4.node],
    deadlineMs: 300_000,
  });
  const dump = await relay.dump();
  console.log(`${SERVICES} Services; a dump of them has ${(dump.length / 1e6).toFixed(1)} MB`);
  const dumpOf = (mode: BackendMode) => `${folder}/${mode}.json`;
  for (const mode of ["iptables", "nftables", "ipvs", "userspace"] as const) {
    await Deno.writeTextFile(dumpOf(mode), inMode(dump, mode));
  }
  const gates = await measureAll({ folder, dumpOf, controlSocket: relay.controlSocket });
  const table = new Table({ head: ["tool, CPU time in times of version", "best", "at most", ""] });
  table.push(...gates.map(gateRow));
  console.log(table.toString());
  if (gates.some(isFailure)) Deno.exitCode = 1;
} finally {
  await Deno.remove(folder, { recursive: true });
}

async function measureAll(scene: ToolScene): Promise<readonly Gate[]> {
  const gates: Gate[] = [];
  const base = await measure(() => ["version"], scene);
  console.log(`'kube-relay version' alone takes ${base.cpuMs.toFixed(0)} ms of CPU time`);
  for (const { name, args, asksNode, atMost } of BENCH_TOOLS) {
    const { cpuMs, turnMs } = await measure(args, scene);
    gates.push({ name: `${name}: ${cpuMs.toFixed(0)} ms`, value: cpuMs / base.cpuMs, atMost });
    if (!asksNode) continue;
    gates.push({
      name: `${name}: longest turn of the node, CPU ms`,
      value: turnMs,
      atMost: AT_MOST_TURN_MS,
      digits: 1,
    });
  }
  return gates;
}

/** The best of some runs: whatever else this machine does only adds to it. */
async function measure(
  argsOf: (scene: ToolScene, run: number) => readonly string[],
  scene: ToolScene,
): Promise<{ readonly cpuMs: number; readonly turnMs: number }> {
  const times: number[] = [];
  const turns: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    turns.push(
      await worstTurn(async () => {
        times.push(await toolCpuMs(argsOf(scene, run)));
      }),
    );
  }
  return { cpuMs: Math.min(...times), turnMs: Math.min(...turns) };
}

/** The dump as a node of another mode has it, on a machine of which nothing is known. */
function inMode(dump: string, mode: BackendMode): string {
  if (mode === "iptables") return dump;
  const parsed = JSON.parse(dump);
  for (const family of parsed.families) delete family.facts;
  return JSON.stringify({ ...parsed, mode });
}

function furnished() {
  return ["choom", "conntrack", "nproc"].reduce(
    (commands, program) => commands.on(program, { code: 1 }),
    new FakeIptablesMachine().commands,
  );
}
