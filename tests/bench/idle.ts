// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Measures kube-relay on an idle node: memory, CPU and number of wake-ups.
 *
 * `deno task bench:idle [--seconds 60] [--source api|folder] [--services 10]`; `KUBE_RELAY` takes
 * the built executable. The API is the real machinery of tests/apiserver (needs Go).
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import Table from "cli-table3";
import { requestStatus } from "../../lib/tools/control/control_client.ts";
import { isSettled } from "../support/stages/relay_process.ts";
import { eventually } from "../support/eventually.ts";
import { relayCommand, spawn } from "./forwarders.ts";
import { createApiFeed, type CreateFeed, createFolderFeed } from "./object_feeds.ts";
import { cpuSeconds, residentMiB, switchesBetween, voluntarySwitches } from "./process_usage.ts";
import { clusterIpOf } from "./service_manifest.ts";
import { ownFlags } from "../support/drivers/own_flags.ts";

const MAX_MIB = 75;
/**
 * A program that only reads the addresses of the machine, each second. What a wake-up costs after
 * seconds without one depends on the machine: 1 to 10 ms on those that were measured.
 */
const PLAIN_PROGRAM = "setInterval(() => Deno.networkInterfaces(), 1_000)";
/** CPU time of kube-relay per CPU time of the plain program. */
const MAX_TIMES_PLAIN = 2;
const MAX_SWITCHES_A_SECOND = 1.2;
/** An aim is missed when it is missed by more than this: kernels and collections of garbage differ. */
const NOISE = 1.1;
/**
 * The time after which a start is over: once everything is served, it still collects garbage,
 * caches code and stops timers.
 */
const CALM_DOWN_MS = 30_000;

const flags = parseArgs(Deno.args, { string: ["seconds", "services", "source"] });
const SECONDS = Number(flags.seconds ?? 60);
const SERVICES = Number(flags.services ?? 10);
const SOURCES: Readonly<Record<string, CreateFeed>> = {
  folder: createFolderFeed,
  api: createApiFeed,
};
const createFeed = SOURCES[String(flags.source ?? "api")];
if (!createFeed) {
  throw new RangeError(`Cannot take objects from '${flags.source}': expected api or folder`);
}

const folder = await Deno.makeTempDir({ prefix: "kube-relay-idle-" });
try {
  const misses = report(await measure(createFeed));
  if (misses.length > 0) Deno.exitCode = 1;
} finally {
  await Deno.remove(folder, { recursive: true });
}

interface Idle {
  readonly residentMiB: number;
  readonly cpuPercent: number;
  readonly timesPlain: number;
  readonly switchesASecond: number;
}

async function measure(create: CreateFeed): Promise<Idle> {
  const services = Array.from({ length: SERVICES }, (_, index) => ({
    name: `service-${index}`,
    clusterIp: clusterIpOf(index),
    protocol: "TCP" as const,
    endpoints: ["127.0.0.1", "127.0.0.2"],
    endpointPort: 8080,
  }));
  await using feed = await create(`${folder}/feed`, services);
  // The first start fills the code cache, which is not the normal case of a node.
  await (await startRelay(feed.flags))[Symbol.asyncDispose]();
  await using relay = await startRelay(feed.flags);
  await using plain = spawn(Deno.execPath(), ["eval", PLAIN_PROGRAM]);
  await delay(CALM_DOWN_MS);
  const [cpu, plainCpu, switches] = await usageOf(relay, plain);
  await delay(SECONDS * 1000);
  const [cpuAfter, plainCpuAfter, switchesAfter] = await usageOf(relay, plain);
  return {
    residentMiB: (await residentMiB(relay.pid)).now,
    cpuPercent: 100 * (cpuAfter - cpu) / SECONDS,
    timesPlain: (cpuAfter - cpu) / (plainCpuAfter - plainCpu),
    switchesASecond: switchesBetween(switches, switchesAfter) / SECONDS,
  };
}

function usageOf(relay: { readonly pid: number }, plain: { readonly pid: number }) {
  return Promise.all([
    cpuSeconds(relay.pid),
    cpuSeconds(plain.pid),
    voluntarySwitches(relay.pid),
  ]);
}

async function startRelay(
  source: readonly string[],
): Promise<{ readonly pid: number } & AsyncDisposable> {
  const { program, args } = relayCommand();
  const socket = `${folder}/control.sock`;
  const relay = spawn(program, [
    ...args,
    "--mode=userspace",
    ...source,
    ...ownFlags(folder),
  ]);
  await eventually("kube-relay serves", async () => {
    const status = await requestStatus(socket).catch(() => undefined);
    return status !== undefined && isSettled(status);
  }, { deadlineMs: 60_000 });
  return relay;
}

/** Prints the figures; returns those that are worse than the aim by more than noise. */
function report(idle: Idle): readonly string[] {
  const rows = [
    ["resident memory, MiB", idle.residentMiB, MAX_MIB],
    ["CPU, times that of a plain program", idle.timesPlain, MAX_TIMES_PLAIN],
    ["voluntary context switches a second", idle.switchesASecond, MAX_SWITCHES_A_SECOND],
  ] as const;
  const table = new Table({ head: ["idle node", "", "at most"], style: { head: [], border: [] } });
  for (const [name, value, limit] of rows) table.push([name, value.toFixed(2), String(limit)]);
  console.log(table.toString());
  console.log(`${idle.cpuPercent.toFixed(2)} % of a core`);
  const above = rows.filter(([, value, limit]) => value > limit).map(([name]) => name);
  const misses = rows.filter(([, value, limit]) => value > limit * NOISE).map(([name]) => name);
  if (above.length === 0) console.log("Every aim is met.");
  else console.log(`Above the aim: ${above.join("; ")}.`);
  if (misses.length > 0) console.log(`Missed: ${misses.join("; ")}`);
  return misses;
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
