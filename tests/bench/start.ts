// deno-lint-ignore-file no-console -- its output is what it is for
/**
 * A program in a network namespace: starts kube-relay in a kernel mode on real API machinery with a
 * number of Services. Prints the cost of the start and of a change afterwards.
 *
 * @module
 */
import type { BackendMode } from "../../lib/proxy/backend.ts";
import { buildApiserver } from "../conformance/build_apiserver.ts";
import { type ApiMachinery, startApiMachinery } from "../support/stages/api_machinery.ts";
import { eventually } from "../support/eventually.ts";
import { writeKubeconfig } from "../support/builders/kubeconfig_file.ts";
import { cpuSeconds, residentMiB } from "./process_usage.ts";
import { percentile } from "./statistics.ts";
import { BENCH_PORT } from "./agent_protocol.ts";
import { benchNode, type BenchRelay, startBenchRelay, type Sync } from "./bench_relay.ts";
import { benchClusterIp, benchObjects } from "./bench_services.ts";

/** The output, as JSON. */
export interface StartFigures {
  readonly services: number;
  /** Seconds from the start of the process until the last Service answers. */
  readonly secondsToProgrammed: number;
  /** Milliseconds of the sync that wrote them, the tool's included. */
  readonly syncMs: number;
  /** CPU of kube-relay and of the tools that it ran, until then. */
  readonly cpuSeconds: number;
  /** Some seconds later. */
  readonly residentMiB: number;
  readonly peakMiB: number;
  /** Half a minute after the last change; `undefined` = of few Services it is not waited for. */
  readonly restingMiB?: number;
  readonly largestStallMs: number;
  /** Median milliseconds of a sync of one changed endpoint, and the most lines of one. */
  readonly changeMs: number;
  readonly changeLines: number;
}

const CHANGES = 10;
const LARGE = 10_000;
const RESTING_MS = 30_000;
const DEADLINE = { deadlineMs: 240_000 };

if (import.meta.main) {
  const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
  try {
    console.log(JSON.stringify(await measure(folder, readTask(Deno.args))));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  Deno.exit(0);
}

/** The program to start. */
interface StartTask {
  readonly mode: BackendMode;
  readonly services: number;
}

function readTask([mode, services]: readonly string[]): StartTask {
  if (mode !== "iptables" && mode !== "nftables") {
    throw new RangeError(`Cannot start mode '${mode}': expected iptables or nftables`);
  }
  return { mode, services: Number(services) };
}

async function measure(folder: string, { mode, services }: StartTask): Promise<StartFigures> {
  const program = await buildApiserver();
  if (program === undefined) throw new Error("Cannot build tests/apiserver: Go is missing");
  await using machinery = await startApiMachinery({ program });
  const objects = Array.from({ length: services }, (_, index) => benchObjects(index, [0, 1]))
    .flat();
  await machinery.admin.createAll([benchNode(), ...objects]);
  const kubeconfig = await kubeconfigOf(machinery, folder);
  using listener = Deno.listen({ hostname: "0.0.0.0", port: BENCH_PORT });
  void acceptAll(listener);
  const started = performance.now();
  await using relay = startBenchRelay({ folder, mode, kubeconfig });
  const last = benchClusterIp(services - 1);
  await eventually("the last Service answers", () => answers(last), DEADLINE);
  const secondsToProgrammed = (performance.now() - started) / 1000;
  const first = await eventually("a first sync", relay.lastSync, DEADLINE);
  if (first.services !== services) throw new Error(`The first sync was of ${first.services}`);
  // What a start leaves behind has been collected by then.
  await new Promise((resolve) => setTimeout(resolve, 3000));
  const cpu = await cpuSeconds(relay.pid);
  const memory = await residentMiB(relay.pid);
  const changes = await measureChanges(machinery, { relay, services });
  const { largestEventLoopDelayMs } = await relay.status();
  const isLarge = services >= LARGE;
  if (isLarge) await new Promise((resolve) => setTimeout(resolve, RESTING_MS));
  return {
    services,
    secondsToProgrammed,
    syncMs: first.durationMs,
    cpuSeconds: cpu,
    residentMiB: memory.now,
    peakMiB: memory.peak,
    ...(isLarge && { restingMiB: (await residentMiB(relay.pid)).now }),
    largestStallMs: largestEventLoopDelayMs,
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
  for (let change = 1; change <= CHANGES; change++) {
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
