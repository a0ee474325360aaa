/**
 * A program in a network namespace: kube-relay in nftables mode with many Services, of which a
 * thousand a second get another endpoint, each once. The kernel tells when it has each of them. The
 * objects come from the API server of our tests in a process of its own: the real machinery takes
 * more than this machine has for a thousand writes a second. Prints what came of it.
 */
import type { RawObject } from "../../conformance/server.ts";
import { eventually } from "../../support/eventually.ts";
import type { FakeApiRequest } from "../../support/fakes/fake_api_program.ts";
import { LineProcess } from "../../support/drivers/line_process.ts";
import { benchNode, startBenchRelay } from "../bench_relay.ts";
import { runBenchTask } from "../bench_task.ts";
import { benchClusterIp, benchEndpoint, benchObjects } from "../bench_services.ts";
import { busySeconds, cpuSeconds, residentMiB } from "../process_usage.ts";
import { percentile } from "../statistics.ts";

/** The parameters of the run. */
export interface ChurnTask {
  /** The number of Services. */
  readonly services: number;
  /** The number of Services that change, in as many milliseconds. */
  readonly changes: number;
  readonly minSyncPeriod: string;
}

/** The output, as JSON. */
export interface ChurnFigures {
  readonly task: ChurnTask;
  /** Milliseconds from before an event was sent until the change was in the kernel. */
  readonly medianMs: number;
  readonly p99Ms: number;
  readonly mostMs: number;
  /** Changes that never reached the kernel, or differ from its content at the end. */
  readonly lost: number;
  /** IP families that still had changes before them at the end. */
  readonly backlog: number;
  /** Milliseconds that the last event was sent after its time. */
  readonly feedDelayMs: number;
  readonly largestStallMs: number;
  /** CPU of kube-relay and of the tools that it ran, for each change. */
  readonly cpuMsPerChange: number;
  readonly residentMiB: number;
  /** Processors that other programs kept busy meanwhile. */
  readonly foreignCores: number;
}

const FAKE_API = new URL("../../support/fakes/fake_api_program.ts", import.meta.url).pathname;
const BATCH_MS = 10;
const FILL = 500;
/** Other endpoints than those at the start have numbers from here on. */
const CHANGED_NUMBER = 64;
const DEADLINE = { deadlineMs: 120_000 };

if (import.meta.main) await runBenchTask(measure);

async function measure(folder: string, task: ChurnTask): Promise<ChurnFigures> {
  const { services, changes, minSyncPeriod } = task;
  const kubeconfig = `${folder}/kubeconfig`;
  await using api = await startApi(kubeconfig);
  await fill(api, services);
  await using relay = startBenchRelay({ folder, mode: "nftables", kubeconfig, minSyncPeriod });
  const first = await eventually("a first sync", relay.lastSync, DEADLINE);
  if (first.services !== services) throw new Error(`The first sync was of ${first.services}`);
  const ours = async () =>
    await cpuSeconds(relay.pid) + await cpuSeconds(api.pid) + await cpuSeconds(Deno.pid);
  const [startedAt, cpuBefore] = [performance.now(), await cpuSeconds(relay.pid)];
  const [busyBefore, oursBefore] = [await busySeconds(), await ours()];
  await using monitor = new LineProcess("nft", ["monitor", "new", "elements"]);
  const commits = follow(monitor);
  const sent = await feed(api, changes);
  const all = eventually("every change is in the kernel", () => commits.size >= changes, DEADLINE);
  // What is missing then is counted as lost.
  await all.catch(() => undefined);
  const foreign = await busySeconds() - busyBefore - (await ours() - oursBefore);
  const seconds = (performance.now() - startedAt) / 1000;
  const latencies = sent.flatMap((at, index) => {
    const seen = commits.get(benchClusterIp(index));
    return seen === undefined ? [] : [seen - at];
  });
  const held = await heldEndpoints();
  const lost = sent.keys().filter((index) =>
    !commits.has(benchClusterIp(index)) || !held.has(benchEndpoint(index, CHANGED_NUMBER))
  );
  const { largestEventLoopDelayMs, families } = await relay.status();
  const cpu = await cpuSeconds(relay.pid) - cpuBefore;
  const figures = {
    task,
    medianMs: percentile(latencies, 0.5),
    p99Ms: percentile(latencies, 0.99),
    mostMs: Math.max(...latencies),
    lost: lost.toArray().length,
    backlog: families.filter(({ pending }) => pending).length,
    feedDelayMs: sent.at(-1)! - sent[0]! - changes,
    largestStallMs: largestEventLoopDelayMs,
    cpuMsPerChange: cpu * 1000 / changes,
    residentMiB: (await residentMiB(relay.pid)).now,
    foreignCores: foreign / seconds,
  };
  // The goodbye of an HTTP/2 client may make the API server fail.
  Deno.kill(relay.pid, "SIGKILL");
  return figures;
}

async function startApi(kubeconfig: string): Promise<LineProcess> {
  const flags = ["run", "--quiet", "--no-prompt", "--no-check", "--allow-all"];
  const api = new LineProcess(Deno.execPath(), [...flags, FAKE_API, kubeconfig]);
  await api.nextLine();
  return api;
}

async function fill(api: LineProcess, services: number): Promise<void> {
  await write(api, [benchNode()]);
  for (let from = 0; from < services; from += FILL) {
    const indexes = Array.from({ length: Math.min(FILL, services - from) }, (_, nth) => from + nth);
    await write(api, indexes.flatMap((index) => benchObjects(index, [0, 1])));
  }
}

/** Sends a change each millisecond. Resolves to when each was sent, by `performance.now()`. */
async function feed(api: LineProcess, changes: number): Promise<readonly number[]> {
  const sent: number[] = [];
  const started = performance.now();
  while (sent.length < changes) {
    const due = Math.min(changes, Math.floor(performance.now() - started));
    const batch: RawObject[] = [];
    const at = performance.now();
    for (; sent.length < due; sent.push(at)) {
      batch.push(benchObjects(sent.length, [CHANGED_NUMBER, 1])[1]);
    }
    if (batch.length > 0) await write(api, batch);
    const rest = BATCH_MS - (performance.now() - at);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, rest)));
  }
  return sent;
}

async function write(api: LineProcess, objects: readonly RawObject[]): Promise<void> {
  const request: FakeApiRequest = { do: "write", objects, deleted: [] };
  await api.writeLine(JSON.stringify(request));
  const answer = await api.nextLine();
  if (answer !== "done") throw new Error(`Cannot write: ${answer}`);
}

/**
 * Collects the time at which the first endpoint of each Service changed in the kernel, by the
 * Service's cluster IP.
 */
function follow(monitor: LineProcess): ReadonlyMap<string, number> {
  const commits = new Map<string, number>();
  const read = async () => {
    for (;;) {
      const line = await monitor.nextLine();
      // A key begins with the address of the Service.
      const [, address] = /^add element ip kube-relay endpoints \{ (\S+) /.exec(line) ?? [];
      if (address !== undefined && !commits.has(address)) commits.set(address, performance.now());
    }
  };
  read().catch(() => {});
  return commits;
}

/** Every endpoint that the kernel holds, as `address:port`. */
async function heldEndpoints(): Promise<ReadonlySet<string>> {
  const { success, stdout } = await new Deno.Command("nft", {
    args: ["list", "map", "ip", "kube-relay", "endpoints"],
  }).output();
  if (!success) throw new Error("Cannot list the endpoints");
  const found = new TextDecoder().decode(stdout).matchAll(/ : (\S+) \. (\d+)/g);
  return new Set(found.map(([, address, port]) => `${address}:${port}`));
}
