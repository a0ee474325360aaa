// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Many Services: time from start until all are served, memory after it and with none, the largest
 * stall of the event loop and the latency of a forwarded request meanwhile; then one change of an
 * endpoint, whose operations must not depend on how many Services there are.
 *
 * `deno task bench:startup [--services 10000] [--source folder|api]`; `KUBE_RELAY=dist/kube-relay`
 * takes the built executable. The API is the real machinery of tests/apiserver (needs Go).
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import Table from "cli-table3";
import { requestStatus } from "../../lib/tools/control/control_client.ts";
import type { StatusReport } from "../../lib/tools/status/status_report.ts";
import { relayCommand, spawn } from "./forwarders.ts";
import {
  createApiFeed,
  type CreateFeed,
  createFolderFeed,
  type ObjectFeed,
} from "./object_feeds.ts";
import { cpuSeconds, residentMiB } from "./process_usage.ts";
import { type BenchService, clusterIpOf, servicePort } from "./service_manifest.ts";
import { percentile } from "./statistics.ts";
import { ownFlags } from "../support/drivers/own_flags.ts";

const flags = parseArgs(Deno.args, { string: ["services", "changes", "source"] });
const SERVICES = Number(flags.services ?? 10_000);
const CHANGES = Number(flags.changes ?? 20);
const SOURCES: Readonly<Record<string, CreateFeed>> = {
  folder: createFolderFeed,
  api: createApiFeed,
};
const createFeed = SOURCES[String(flags.source ?? "folder")];
if (!createFeed) {
  throw new RangeError(`Cannot take objects from '${flags.source}': expected folder or api`);
}

const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
try {
  const empty = await measureIdle(`${folder}/empty`);
  const small = await measureStart(`${folder}/small`, 10);
  const large = await measureStart(`${folder}/large`, SERVICES);
  report(empty, [small, large]);
  assertSameOperations(small, large);
} finally {
  await Deno.remove(folder, { recursive: true });
}

interface Start {
  readonly services: number;
  readonly secondsToServe: number;
  readonly cpuSeconds: number;
  readonly memory: { readonly now: number; readonly peak: number };
  readonly largestStallMs: number;
  /** Milliseconds of requests through one Service while the others were set up. */
  readonly requestMs: readonly number[];
  /** The operations of each change of an endpoint. */
  readonly operations: readonly Readonly<Record<string, number>>[];
  readonly changeMs: readonly number[];
}

async function startRelay(
  at: string,
  feed: ObjectFeed,
): Promise<
  { readonly pid: number; status(brief?: boolean): Promise<StatusReport> } & AsyncDisposable
> {
  await Deno.mkdir(at, { recursive: true });
  const { program, args } = relayCommand();
  const socket = `${at}/control.sock`;
  const relay = spawn(program, [
    ...args,
    "--mode=userspace",
    ...feed.flags,
    // Changes follow each other faster here than the default lets syncs do.
    "--iptables-min-sync-period=10ms",
    ...ownFlags(at),
  ]);
  return { ...relay, status: (brief = true) => requestStatus(socket, { brief }) };
}

async function measureIdle(at: string): Promise<{ now: number; peak: number }> {
  await using feed = await createFeed!(`${at}/feed`, []);
  await using relay = await startRelay(at, feed);
  await until(async () => (await relay.status()).phase === "serving");
  await delay(3000);
  return await residentMiB(relay.pid);
}

async function measureStart(at: string, services: number): Promise<Start> {
  const server = startServers();
  try {
    const all = Array.from({ length: services }, (_, index) => benchService(index, server.port));
    await using feed = await createFeed!(`${at}/feed`, all);
    const started = performance.now();
    await using relay = await startRelay(at, feed);
    const requests = startRequests(clusterIpOf(0));
    const last = clusterIpOf(services - 1);
    await until(() => answers(last));
    // Services are served while others are still being read: only the long status names all of
    // them.
    await until(async () =>
      isSettled(await relay.status()) && servedOf(await relay.status(false)) === services
    );
    await until(async () => isSettled(await relay.status()));
    const secondsToServe = (performance.now() - started) / 1000;
    const requestMs = await requests.stop();
    await delay(2000);
    const memory = await residentMiB(relay.pid);
    const cpu = await cpuSeconds(relay.pid);
    const changes = await measureChanges(feed, { relay, service: all[1]! });
    return {
      services,
      secondsToServe,
      cpuSeconds: cpu,
      memory,
      largestStallMs: (await relay.status()).largestEventLoopDelayMs,
      requestMs,
      ...changes,
    };
  } finally {
    await server.close();
  }
}

/** Takes an endpoint away from one Service and gives it back, and looks at what that cost. */
async function measureChanges(
  feed: ObjectFeed,
  { relay, service }: {
    readonly relay: { status(): Promise<StatusReport> };
    readonly service: BenchService;
  },
): Promise<Pick<Start, "operations" | "changeMs">> {
  const operations: Record<string, number>[] = [];
  const changeMs: number[] = [];
  for (let change = 0; change < CHANGES; change++) {
    const before = lastSyncOf(await relay.status());
    const endpoints = change % 2 === 0 ? ["127.0.0.1"] : service.endpoints;
    const changed = performance.now();
    await feed.update({ ...service, endpoints });
    const after = await until(async () => {
      const sync = lastSyncOf(await relay.status());
      return sync !== undefined && sync.at !== before?.at && sync;
    });
    changeMs.push(performance.now() - changed);
    operations.push({ services: after.services, ...after.operations });
  }
  return { operations, changeMs };
}

function lastSyncOf(status: StatusReport): StatusReport["families"][number]["lastSync"] {
  return status.families.find(({ family }) => family === "IPv4")?.lastSync;
}

function isSettled(status: StatusReport): boolean {
  const family = status.families.find(({ family }) => family === "IPv4");
  return family !== undefined && !family.pending && family.quarantined.length === 0;
}

function servedOf(status: StatusReport): number | undefined {
  return status.families.find(({ family }) => family === "IPv4")?.services.length;
}

function benchService(index: number, endpointPort: number): BenchService {
  return {
    name: `service-${index}`,
    clusterIp: clusterIpOf(index),
    protocol: "TCP",
    endpoints: ["127.0.0.1", "127.0.0.2"],
    endpointPort,
  };
}

function startServers(): { readonly port: number; close(): Promise<void> } {
  const handler = () => new Response("hello\n", { headers: { connection: "close" } });
  const onListen = () => {};
  const first = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen }, handler);
  const { port } = first.addr;
  const second = Deno.serve({ hostname: "127.0.0.2", port, onListen }, handler);
  return {
    port,
    async close() {
      await Promise.all([first.shutdown(), second.shutdown()]);
    },
  };
}

/** Sends requests to the first Service. Refusals before it is served do not count. */
function startRequests(hostname: string): { stop(): Promise<number[]> } {
  const times: number[] = [];
  let stopped = false;
  const running = (async () => {
    while (!stopped) {
      const started = performance.now();
      if (await answers(hostname)) times.push(performance.now() - started);
      await delay(5);
    }
  })();
  return {
    async stop() {
      stopped = true;
      await running;
      return times;
    },
  };
}

async function answers(hostname: string): Promise<boolean> {
  try {
    const connection = await Deno.connect({ hostname, port: servicePort("TCP") });
    try {
      await connection.write(new TextEncoder().encode("GET / HTTP/1.0\r\n\r\n"));
      return await connection.read(new Uint8Array(512)) !== null;
    } finally {
      connection.close();
    }
  } catch {
    return false;
  }
}

function report(idle: { now: number; peak: number }, starts: readonly Start[]): void {
  const table = new Table({
    head: ["", ...starts.map(({ services }) => `${services} Services`)],
    style: { head: [], border: [] },
  });
  const row = (name: string, value: (start: Start) => string) =>
    table.push([name, ...starts.map(value)]);
  row("start to all served, s", ({ secondsToServe }) => secondsToServe.toFixed(2));
  row("CPU until then, s", ({ cpuSeconds }) => cpuSeconds.toFixed(2));
  row("resident memory, MiB", ({ memory }) => `${memory.now.toFixed(0)} (aim 150)`);
  row("most that it was, MiB", ({ memory }) => memory.peak.toFixed(0));
  row("largest stall of the event loop, ms", ({ largestStallMs }) => largestStallMs.toFixed(0));
  row(
    "request meanwhile: p50, p99, ms",
    ({ requestMs }) =>
      [0.5, 0.99].map((share) => percentile(requestMs, share).toFixed(1)).join(", "),
  );
  row("one change of an endpoint, p50, ms", ({ changeMs }) => percentile(changeMs, 0.5).toFixed(0));
  row("operations of one change", ({ operations }) => JSON.stringify(operations.at(-1)));
  console.log(table.toString());
  console.log(`With no Services: ${idle.now.toFixed(0)} MiB resident (aim 75).`);
}

/** The gate: a change costs the same among 10 Services and among all of them. */
function assertSameOperations(small: Start, large: Start): void {
  const few = JSON.stringify(small.operations);
  const many = JSON.stringify(large.operations);
  if (few !== many) {
    throw new Error(
      `A change costs more among ${large.services} Services: ${many}, among ${small.services}: ${few}`,
    );
  }
  console.log("Operations of a change do not depend on the number of Services.");
}

async function until<T>(ask: () => Promise<T | false | undefined>): Promise<T> {
  const deadline = performance.now() + 120_000;
  for (;;) {
    const answer = await ask().catch(() => undefined);
    if (answer) return answer;
    if (performance.now() > deadline) throw new Error("Nothing is served after 120 s");
    await delay(10);
  }
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
