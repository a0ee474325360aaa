/**
 * A program in a network namespace: starts kube-relay in a kernel mode on real API machinery with a
 * number of Services. Prints the cost of the start and of a change afterwards.
 */
import { TOOLS } from "../../../lib/os/tools.ts";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import { buildApiserver } from "../../conformance/build_apiserver.ts";
import { type ApiMachinery, startApiMachinery } from "../../support/stages/api_machinery.ts";
import { eventually } from "../../support/eventually.ts";
import { runTool } from "../../support/drivers/run_tool.ts";
import { writeKubeconfig } from "../../support/builders/kubeconfig_file.ts";
import { type ApiTraffic, apiTraffic } from "../api_traffic.ts";
import { cpuSeconds, cpuShares, residentMiB } from "../process_usage.ts";
import { percentile } from "../statistics.ts";
import {
  benchNode,
  type BenchRelay,
  benchServiceCidr,
  startBenchRelay,
  type Sync,
} from "../bench_relay.ts";
import { runBenchTask } from "../bench_task.ts";
import { BENCH_PORT, benchClusterIp, benchObjects } from "../bench_services.ts";
import { type DecodingCost, measureDecoding } from "./decoding.ts";
import { memoryOverChanges } from "./many_changes.ts";

/** The output, as JSON. */
export interface StartFigures {
  readonly services: number;
  /** Seconds from the start of the process until the last Service answers. */
  readonly secondsToProgrammed: number;
  /** Milliseconds of the sync that wrote them, the tool's included. */
  readonly syncMs: number;
  /** CPU of kube-relay until then. */
  readonly ownCpuSeconds: number;
  /** CPU of the tools that it ran until then. */
  readonly toolCpuSeconds: number;
  /** What came from the API server until then, and the segments that went to it. */
  readonly traffic: ApiTraffic;
  /** The same lists, read and parsed by a program that keeps nothing. */
  readonly decoding: DecodingCost;
  /** The same rules, loaded by the tool alone. */
  readonly toolLoad: ToolLoad;
  /**
   * Programs that kube-relay ran until the last Service answered, by name; `undefined` = not counted,
   * because the stand-ins that count them take time.
   */
  readonly programs?: Readonly<Record<string, number>>;
  /** Programs for a hundred changes, where they are counted. */
  readonly hundredChangesPrograms?: number;
  /** Some seconds later. */
  readonly residentMiB: number;
  readonly peakMiB: number;
  /** Half a minute after the last change; `undefined` = of few Services it is not waited for. */
  readonly restingMiB?: number;
  readonly largestStallMs: number;
  /** Median milliseconds of a sync of one changed endpoint, and the most lines of one. */
  readonly changeMs: number;
  /** CPU of kube-relay and its tools for a hundred of them, one after the other. */
  readonly hundredChangesCpuSeconds: number;
  readonly changeLines: number;
  /** Resident memory in MiB over the changes that were asked for; see {@linkcode memoryOverChanges}. */
  readonly memoryOverChanges?: readonly number[];
}

const TIMED_CHANGES = 10;
/** Many, since a check for changes by other programs may fall among them. */
const HUNDRED = 100;
/** Between two of them, which is more than a sync takes. */
const PAUSE_MS = 100;
const LARGE = 10_000;
const RESTING_MS = 30_000;
const DEADLINE = { deadlineMs: 240_000 };

/** What is started. */
export const STARTED_MODES = ["nftables", "iptables", "iptables-legacy"] as const;

/** One of {@linkcode STARTED_MODES}; `iptables` = the variant of nf_tables. */
export type StartedMode = typeof STARTED_MODES[number];

const BACKENDS: Readonly<Record<StartedMode, BackendMode>> = {
  nftables: "nftables",
  iptables: "iptables",
  "iptables-legacy": "iptables",
};

/** The program to start. */
export interface StartTask {
  readonly mode: StartedMode;
  readonly services: number;
  /** Whether the programs that it starts are counted, which takes time. @default {false} */
  readonly counts?: boolean;
  /** Number of changes over which memory is measured. @default {0} */
  readonly changes?: number;
}

/** Marks the variant of the legacy tables as the one in use, as the kubelet does. */
async function hintAtLegacy(): Promise<void> {
  for (const tool of ["iptables-legacy", "ip6tables-legacy"]) {
    await runTool(tool, ["-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
  }
}

async function measure(
  folder: string,
  { mode, services, counts = false, changes: manyChanges = 0 }: StartTask,
): Promise<StartFigures> {
  const program = await buildApiserver();
  if (program === undefined) throw new Error("Cannot build tests/apiserver: Go is missing");
  await using machinery = await startApiMachinery({ program });
  const objects = Array.from({ length: services }, (_, index) => benchObjects(index, [0, 1]))
    .flat();
  await machinery.admin.createAll([benchNode(), benchServiceCidr(), ...objects]);
  const kubeconfig = await kubeconfigOf(machinery, folder);
  if (mode === "iptables-legacy") await hintAtLegacy();
  // The first list fills the caches of the API server.
  await measureDecoding(machinery, folder);
  const decoding = await measureDecoding(machinery, folder);
  const counter = counts ? await countPrograms(folder) : undefined;
  using listener = Deno.listen({ hostname: "0.0.0.0", port: BENCH_PORT });
  void acceptAll(listener);
  const started = performance.now();
  await using relay = startBenchRelay({ folder, mode: BACKENDS[mode], kubeconfig });
  const last = benchClusterIp(services - 1);
  await eventually("the last Service answers", () => answers(last), DEADLINE);
  const secondsToProgrammed = (performance.now() - started) / 1000;
  const programs = await counter?.counts();
  const atServing = await cpuShares(relay.pid);
  const traffic = await apiTraffic({
    pid: relay.pid,
    port: new URL(machinery.url).port,
  });
  if (traffic.receivedBytes === 0) throw new Error(`Cannot count: nothing was read`);
  const first = await eventually("a first sync", relay.lastSync, DEADLINE);
  if (first.services !== services) throw new Error(`The first sync was of ${first.services}`);
  // What a start leaves behind has been collected by then.
  await new Promise((resolve) => setTimeout(resolve, 3000));
  const settled = await cpuShares(relay.pid);
  const toolLoad = await measureToolLoad(mode, folder);
  const memory = await residentMiB(relay.pid);
  const changes = await measureChanges(machinery, { relay, services });
  const before = await counter?.counts();
  const cpu = await cpuOfChanges(machinery, { relay, services });
  const after = await counter?.counts();
  const { largestEventLoopDelayMs } = await relay.status();
  const isLarge = services >= LARGE;
  if (isLarge) await new Promise((resolve) => setTimeout(resolve, RESTING_MS));
  const restingMiB = isLarge ? (await residentMiB(relay.pid)).now : undefined;
  const many = { relay, services, changes: manyChanges };
  const overChanges = manyChanges > 0 ? await memoryOverChanges(machinery, many) : undefined;
  return {
    services,
    secondsToProgrammed,
    syncMs: first.durationMs,
    ownCpuSeconds: atServing.own,
    // A tool counts when it has ended, which may be after its last write.
    toolCpuSeconds: settled.children,
    traffic,
    decoding,
    toolLoad,
    ...(programs && { programs }),
    residentMiB: memory.now,
    peakMiB: memory.peak,
    ...(restingMiB !== undefined && { restingMiB }),
    ...(overChanges && { memoryOverChanges: overChanges }),
    largestStallMs: largestEventLoopDelayMs,
    hundredChangesCpuSeconds: cpu,
    ...(before && after && { hundredChangesPrograms: sumOf(after) - sumOf(before) }),
    changeMs: percentile(changes.map(({ durationMs }) => durationMs), 0.5),
    changeLines: Math.max(...changes.map(({ operations }) => operations.lines ?? 0)),
  };
}

/** Gives some Services other endpoints, one after the other. */
async function measureChanges(
  machinery: ApiMachinery,
  { relay, services }: { readonly relay: BenchRelay; readonly services: number },
): Promise<readonly Sync[]> {
  const syncs: Sync[] = [];
  for (let change = 1; change <= TIMED_CHANGES; change++) {
    const before = await relay.lastSync();
    await machinery.update(benchObjects((change * 997) % services, [change + 1, 1])[1]);
    syncs.push(
      await eventually("the change is synced", async () => {
        const sync = await relay.lastSync();
        return sync !== undefined && sync.at !== before?.at && sync;
      }),
    );
  }
  return syncs;
}

/** All programs that were run. */
export function sumOf(programs: Readonly<Record<string, number>>): number {
  return Object.values(programs).reduce((sum, count) => sum + count, 0);
}

/** CPU seconds of changes about which nobody asks meanwhile. */
async function cpuOfChanges(
  machinery: ApiMachinery,
  { relay, services }: { readonly relay: BenchRelay; readonly services: number },
): Promise<number> {
  const before = await cpuSeconds(relay.pid);
  for (let change = 1; change <= HUNDRED; change++) {
    await machinery.update(benchObjects((change * 997) % services, [change + 2, 1])[1]);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return await cpuSeconds(relay.pid) - before;
}

async function kubeconfigOf(machinery: ApiMachinery, folder: string): Promise<string> {
  const path = `${folder}/kubeconfig`;
  const { url, ca } = machinery;
  await writeKubeconfig(path, { server: url, ca, user: { token: machinery.token() } });
  return path;
}

async function answers(hostname: string): Promise<boolean> {
  const signal = AbortSignal.timeout(200);
  return await Deno.connect({ hostname, port: BENCH_PORT, signal }).then((connection) => {
    connection.close();
    return true;
  }, () => false);
}

async function acceptAll(listener: Deno.Listener): Promise<void> {
  for await (const connection of listener) connection.close();
}

/** The cost of one load. */
interface ToolLoad {
  readonly seconds: number;
  readonly cpuSeconds: number;
}

const RULE_TOOLS: Readonly<Record<StartedMode, { readonly save: string; readonly load: string }>> =
  {
    nftables: { save: "nft list ruleset", load: "nft -f" },
    iptables: { save: "iptables-nft-save", load: "iptables-nft-restore" },
    "iptables-legacy": { save: "iptables-legacy-save", load: "iptables-legacy-restore" },
  };

/** Takes the rules of this network namespace, and loads them into another one. */
async function measureToolLoad(mode: StartedMode, folder: string): Promise<ToolLoad> {
  const { save, load } = RULE_TOOLS[mode];
  const path = `${folder}/rules`;
  const times = `${folder}/times`;
  // The counters of nfacct that two rules name are not in the other namespace.
  await runTool("bash", ["-c", `${save} | grep -v nfacct >${path}`]);
  await runTool("unshare", [
    "--net",
    ...["bash", "-c", `TIMEFORMAT="%R %U %S"; { time ${load} ${path}; } 2>${times}`],
  ]);
  const [seconds = NaN, user = NaN, system = NaN] = (await Deno.readTextFile(times)).trim()
    .split(" ").map(Number);
  return { seconds, cpuSeconds: user + system };
}

/** Puts stand-ins in front of the PATH of this process and of those that it starts from now on. */
async function countPrograms(
  folder: string,
): Promise<{ counts(): Promise<Readonly<Record<string, number>>> }> {
  const stands = `${folder}/programs`;
  const log = `${folder}/programs.log`;
  await Deno.mkdir(stands);
  await Deno.writeTextFile(log, "");
  for (const { name } of TOOLS) {
    const path = await runTool("sh", ["-c", `command -v ${name} || true`]);
    if (path === "") continue;
    const script = `#!/bin/sh\necho ${name} >>${log}\nexec ${path.trim()} "$@"\n`;
    await Deno.writeTextFile(`${stands}/${name}`, script, { mode: 0o755 });
  }
  Deno.env.set("PATH", `${stands}:${Deno.env.get("PATH")}`);
  return {
    async counts() {
      const names = (await Deno.readTextFile(log)).trim().split("\n");
      const groups = Object.groupBy(names, (name) => name);
      return Object.fromEntries(
        Object.entries(groups).map(([name, lines]) => [name, lines?.length ?? 0]),
      );
    },
  };
}

if (import.meta.main) await runBenchTask(measure);
