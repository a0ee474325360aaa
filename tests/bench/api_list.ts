// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * The first list of many Services and EndpointSlices from the real API machinery (or a fake, without Go), as a
 * stream and in pages, in protobuf and in JSON: time, CPU, memory, and the largest stall of the event loop.
 * `tests/bench/startup.ts` measures the whole product.
 *
 * `deno run <permissions> tests/bench/api_list.ts [--services 10000] [--endpoints 2]`
 *
 * @module
 */
import { RecordingInformers } from "../support/fakes/recording_informers.ts";
import { parseArgs } from "@std/cli/parse-args";
import Table from "cli-table3";
import process from "node:process";
import { ApiSource } from "../../lib/kube/api_source.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { buildApiserver } from "../conformance/build_apiserver.ts";
import type { RawObject } from "../conformance/server.ts";
import { startApiMachinery } from "../support/stages/api_machinery.ts";
import { eventually } from "../support/eventually.ts";
import { FakeApiServer } from "../support/fakes/fake_api_server.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { StaticAuth } from "../support/builders/static_auth.ts";
import { rawEndpointSlice, rawService } from "./raw_objects.ts";

const flags = parseArgs(Deno.args, {
  string: ["services", "endpoints", "role", "url", "ca", "token"],
});
const SERVICES = Number(flags.services ?? 10_000);
const ENDPOINTS = Number(flags.endpoints ?? 2);

const ROLES = ["stream protobuf", "stream JSON", "pages protobuf", "pages JSON"];

interface Measurement {
  readonly how: string;
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly rssMiB: number;
  readonly heapMiB: number;
  readonly largestStallMs: number;
  /**
   * CPU time of this process in any one turn: on a busy machine, other processes may cause a stall.
   */
  readonly largestTurnCpuMs: number;
}

// Each measurement is a process of its own: memory that one took is no part of the next.
if (flags.role === undefined) await measureAll();
else await measure(String(flags.role));

async function measureAll(): Promise<void> {
  const program = await buildApiserver();
  await using server = program === undefined
    ? await startFake()
    : await startApiMachinery({ program });
  for (let index = 0; index < SERVICES; index += 100) {
    await Promise.all(Array.from({ length: Math.min(100, SERVICES - index) }, async (_, nth) => {
      await server.create(rawService(index + nth));
      await server.create(rawEndpointSlice(index + nth, ENDPOINTS));
    }));
  }
  const ca = await Deno.makeTempFile({ suffix: ".crt" });
  await Deno.writeTextFile(ca, server.ca);
  try {
    const rows: Measurement[] = [];
    for (const role of [...ROLES, ...ROLES]) {
      const token = `--token=${server.token()}`;
      const args = [`--role=${role}`, `--url=${server.url}`, `--ca=${ca}`, token];
      rows.push(JSON.parse(await runSelf([...args, `--services=${SERVICES}`])));
    }
    print(rows);
  } finally {
    await Deno.remove(ca);
  }
}

/** A server that only knows JSON. */
async function startFake() {
  const fake = await FakeApiServer.start();
  return {
    url: fake.url,
    ca: fake.ca,
    token: () => "",
    create: (object: RawObject) => Promise.resolve(fake.store.create(object)),
    [Symbol.asyncDispose]: () => fake[Symbol.asyncDispose](),
  };
}

async function runSelf(args: readonly string[]): Promise<string> {
  const { code, stdout } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--no-prompt",
      "--v8-flags=--expose-gc",
      "--allow-net=127.0.0.1",
      "--allow-read",
      "--allow-env",
      "--ignore-env",
      "--allow-sys=uid",
      new URL(import.meta.url).pathname,
      ...args,
    ],
    stderr: "inherit",
  }).output();
  if (code !== 0) throw new Error(`Cannot measure: the process ended with exit code ${code}`);
  return new TextDecoder().decode(stdout);
}

async function measure(role: string): Promise<void> {
  const auth = new StaticAuth(String(flags.url), { ca: await Deno.readTextFile(String(flags.ca)) });
  auth.header = `Bearer ${flags.token}`;
  const { set: informers, services, endpointSlices } = new RecordingInformers();
  const source = new ApiSource(
    { clock: systemClock, logger: new MemoryLogger(), auth, random: Math.random },
    {
      informers,
      streamingLists: role.startsWith("stream"),
      protobuf: role.endsWith("protobuf"),
    },
  );
  const abort = new AbortController();
  // Loading node:http2 and connecting take some 40 ms of CPU, once.
  await source.client.get("/version", abort.signal);
  const stalls = watchStalls();
  const startedAt = performance.now();
  source.run(abort.signal).catch((error) => console.error(error));
  await eventually("everything is listed", () => services.synced && endpointSlices.synced, {
    deadlineMs: 120_000,
  });
  const seconds = (performance.now() - startedAt) / 1000;
  const largest = stalls.stop();
  if (services.size !== SERVICES || endpointSlices.size !== SERVICES) {
    throw new Error(`Cannot measure: listed ${services.size} and ${endpointSlices.size} objects`);
  }
  const { user, system } = process.cpuUsage();
  const { rss } = Deno.memoryUsage();
  collectGarbage();
  const { heapUsed } = Deno.memoryUsage();
  const measurement: Measurement = {
    how: role,
    seconds,
    cpuSeconds: (user + system) / 1e6,
    rssMiB: rss / 2 ** 20,
    heapMiB: heapUsed / 2 ** 20,
    ...largest,
  };
  console.log(JSON.stringify(measurement));
  // Not by `abort`: the server of Deno's node:http2 doesn't bear goodbyes after so much data.
  Deno.exit(0);
}

/** Largest gap between two turns of the event loop, beyond the millisecond that was asked for. */
function watchStalls() {
  let last = performance.now();
  let lastCpu = process.cpuUsage();
  const largest = { largestStallMs: 0, largestTurnCpuMs: 0 };
  const id = setInterval(() => {
    const now = performance.now();
    const { user, system } = process.cpuUsage(lastCpu);
    largest.largestStallMs = Math.max(largest.largestStallMs, now - last - 1);
    largest.largestTurnCpuMs = Math.max(largest.largestTurnCpuMs, (user + system) / 1000);
    last = now;
    lastCpu = process.cpuUsage();
  }, 1);
  return {
    stop() {
      clearInterval(id);
      return largest;
    },
  };
}

function collectGarbage(): void {
  (globalThis as { gc?: () => void }).gc?.();
}

function print(rows: readonly Measurement[]): void {
  const head = ["", "s", "CPU s", "RSS MiB", "heap MiB", "largest stall ms", "largest turn CPU ms"];
  const table = new Table({ head });
  for (const { how, ...figures } of rows) {
    table.push([how, ...Object.values(figures).map((figure) => figure.toFixed(1))]);
  }
  console.log(`${SERVICES} Services and EndpointSlices of ${ENDPOINTS} endpoints`);
  console.log(table.toString());
}
