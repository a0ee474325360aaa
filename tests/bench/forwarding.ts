// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Measures the cost of forwarding: kube-relay compared with a direct connection, HAProxy, nginx and
 * socat, all in one run on one machine. Compare CPU per unit of work; rates are noisy.
 *
 * `deno task bench:forwarding [--quick] [--only=START] [--work=START] [--json FILE]`; `--only` and
 * `--work` select the forwarders and workloads whose names have this prefix.
 * `KUBE_RELAY=dist/kube-relay` tests the built executable. Needs haproxy, nginx with its stream
 * module, socat and wrk.
 *
 * @module
 */
import Table from "cli-table3";
import { type Forwarder, FORWARDERS, freePort, spawn } from "./forwarders.ts";
import { cpuSeconds, residentMiB } from "./process_usage.ts";
import { showSpread, spreadOf } from "./statistics.ts";

const quick = Deno.args.includes("--quick");
const only = startOf("--only=");
const onlyWork = startOf("--work=");
const ROUNDS = quick ? 1 : 5;
const SECONDS = quick ? 1 : 5;
/** Before each measurement, so that code is compiled and buffers exist. */
const WARM_UP_SECONDS = quick ? 0.5 : 1.5;
const STREAM_BYTES_PER_SECOND = 1e9;

/** One measured run: work done, seconds passed, CPU seconds of the forwarder. */
interface Sample {
  readonly units: number;
  readonly seconds: number;
  readonly cpuSeconds: number | undefined;
  readonly residentMiB: number | undefined;
}

/** A kind of work. */
interface Workload {
  readonly name: string;
  readonly protocol: "TCP" | "UDP";
  /** The unit of CPU and rate. */
  readonly unit: string;
  readonly cpuUnit: string;
  /** CPU seconds for one unit → the number printed. */
  readonly cpuScale: number;
  readonly rateScale: number;
  /** Whom kube-relay is compared with, and the aim for its CPU. */
  readonly aims: Readonly<Record<string, number>>;
  startServer(folder: string): Promise<{ readonly port: number } & AsyncDisposable>;
  /** Works for about this number of seconds. */
  run(
    forwarder: Forwarder,
    seconds: number,
  ): Promise<{ readonly units: number; readonly seconds: number }>;
}

const WORKLOADS: readonly Workload[] = [
  {
    name: "TCP, one stream",
    protocol: "TCP",
    unit: "Gbit/s",
    cpuUnit: "CPU s/GB",
    cpuScale: 1e9,
    rateScale: 8 / 1e9,
    aims: { haproxy: 1, "haproxy 64 KiB": 1.15 },
    startServer: () => startScript("tcp_source.ts"),
    async run({ hostname, port }, duration) {
      const bytes = Math.round(duration * STREAM_BYTES_PER_SECOND);
      const seconds = Number(await runScript("tcp_sink.ts", [hostname, port, bytes]));
      return { units: bytes, seconds };
    },
  },
  {
    name: "HTTP requests, 16 connections kept",
    protocol: "TCP",
    unit: "requests/s",
    cpuUnit: "CPU µs/request",
    cpuScale: 1e6,
    rateScale: 1,
    aims: { haproxy: 1.1 },
    startServer: startHttpServer,
    run: (forwarder, seconds) => runWrk(forwarder, seconds, []),
  },
  {
    name: "connections, one request each",
    protocol: "TCP",
    unit: "connections/s",
    cpuUnit: "CPU µs/connection",
    cpuScale: 1e6,
    rateScale: 1,
    aims: { haproxy: 1.3 },
    startServer: startHttpServer,
    run: (forwarder, seconds) => runWrk(forwarder, seconds, ["-H", "Connection: close"]),
  },
  {
    name: "UDP round trips, 64 bytes, 8 flows",
    protocol: "UDP",
    unit: "round trips/s",
    cpuUnit: "CPU µs/round trip",
    cpuScale: 1e6,
    rateScale: 1,
    aims: { "nginx stream": 1.5 },
    startServer: () => startScript("udp_echo.ts"),
    async run({ hostname, port }, duration) {
      const text = await runScript("udp_round_trips.ts", [hostname, port, duration]);
      const { roundTrips, seconds } = JSON.parse(text) as { roundTrips: number; seconds: number };
      return { units: roundTrips, seconds };
    },
  },
];

const results: Record<string, Record<string, Sample[]>> = {};
for (const workload of WORKLOADS.filter(({ name }) => name.startsWith(onlyWork))) {
  results[workload.name] = await measure(workload);
  console.log(report(workload, results[workload.name]!));
}
const jsonAt = Deno.args.indexOf("--json");
if (jsonAt >= 0) await Deno.writeTextFile(Deno.args[jsonAt + 1]!, JSON.stringify(results, null, 1));

/**
 * Returns the rest of the argument with this prefix; empty if there is none, which is a prefix of
 * every name.
 */
function startOf(flag: string): string {
  return Deno.args.find((arg) => arg.startsWith(flag))?.slice(flag.length) ?? "";
}

/** Each round takes every forwarder in turn, so that a slow minute of the machine hits all of them. */
async function measure(workload: Workload): Promise<Record<string, Sample[]>> {
  const kinds = FORWARDERS.filter(({ name, protocols }) =>
    protocols.includes(workload.protocol) && name.startsWith(only)
  );
  const samples: Record<string, Sample[]> = Object.fromEntries(kinds.map(({ name }) => [name, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const kind of kinds) {
      const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
      try {
        await using server = await workload.startServer(folder);
        await using forwarder = await kind.start({
          protocol: workload.protocol,
          serverPort: server.port,
          folder,
        });
        samples[kind.name]!.push(await takeSample(workload, forwarder));
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    }
  }
  return samples;
}

async function takeSample(workload: Workload, forwarder: Forwarder): Promise<Sample> {
  const { pid } = forwarder;
  await workload.run(forwarder, WARM_UP_SECONDS);
  const before = pid === undefined ? undefined : await cpuSeconds(pid);
  const { units, seconds } = await workload.run(forwarder, SECONDS);
  if (pid === undefined || before === undefined) {
    return { units, seconds, cpuSeconds: undefined, residentMiB: undefined };
  }
  const used = await cpuSeconds(pid) - before;
  return { units, seconds, cpuSeconds: used, residentMiB: (await residentMiB(pid)).peak };
}

function report(workload: Workload, samples: Readonly<Record<string, readonly Sample[]>>): string {
  const table = new Table({
    head: [workload.name, workload.unit, workload.cpuUnit, "MiB", "CPU of kube-relay against it"],
    style: { head: [], border: [] },
  });
  const cpuOf = (sample: Sample) => (sample.cpuSeconds ?? NaN) / sample.units * workload.cpuScale;
  const relay = samples["kube-relay"]!.map(cpuOf);
  for (const [name, all] of Object.entries(samples)) {
    const rate = spreadOf(all.map(({ units, seconds }) => units / seconds * workload.rateScale));
    const measured = all[0]!.cpuSeconds !== undefined;
    const digits = workload.cpuScale === 1e9 ? 3 : 1;
    const ratios = all.map((sample, round) => relay[round]! / cpuOf(sample));
    const aim = workload.aims[name];
    table.push([
      name,
      showSpread(rate, workload.rateScale === 1 ? 0 : 1),
      measured ? showSpread(spreadOf(all.map(cpuOf)), digits) : "",
      measured ? spreadOf(all.map(({ residentMiB }) => residentMiB ?? 0)).max.toFixed(0) : "",
      measured && name !== "kube-relay"
        ? `${showSpread(spreadOf(ratios))}x${aim === undefined ? "" : ` (aim ${aim})`}`
        : "",
    ]);
  }
  return table.toString();
}

async function startHttpServer(
  folder: string,
): Promise<{ readonly port: number } & AsyncDisposable> {
  const port = freePort();
  const path = `${folder}/nginx-http.conf`;
  await Deno.writeTextFile(
    path,
    `worker_processes 1;
master_process off;
daemon off;
pid ${folder}/nginx-http.pid;
error_log ${folder}/nginx-http.log crit;
events { worker_connections 8192; }
http {
  access_log off;
  keepalive_requests 100000000;
  server { listen 127.0.0.1:${port}; location / { return 200 "hello\\n"; } }
}
`,
  );
  const server = spawn("nginx", ["-c", path]);
  for (let attempt = 0; attempt < 250; attempt++) {
    try {
      (await Deno.connect({ hostname: "127.0.0.1", port })).close();
      break;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  return { ...server, port };
}

async function runWrk(
  { hostname, port }: Forwarder,
  seconds: number,
  extra: readonly string[],
): Promise<{ units: number; seconds: number }> {
  const args = ["-t1", "-c16", `-d${Math.ceil(seconds)}s`, ...extra, `http://${hostname}:${port}/`];
  const { stdout } = await new Deno.Command("wrk", { args }).output();
  const text = new TextDecoder().decode(stdout);
  const found = /(\d+) requests in ([\d.]+)s/.exec(text);
  if (!found) throw new Error(`Cannot read what wrk printed: ${text}`);
  if (/Socket errors|Non-2xx/.test(text)) console.error(text);
  return { units: Number(found[1]), seconds: Number(found[2]) };
}

/** Starts a load program that prints its port. */
async function startScript(name: string): Promise<{ readonly port: number } & AsyncDisposable> {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "--quiet", "--unstable-net", "--allow-net", scriptPath(name)],
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const reader = child.stdout.getReader();
  const port = Number(new TextDecoder().decode((await reader.read()).value));
  return {
    port,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await reader.cancel();
      await child.status;
    },
  };
}

async function runScript(name: string, args: readonly (string | number)[]): Promise<string> {
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--quiet",
      "--unstable-net",
      "--allow-net",
      scriptPath(name),
      ...args.map(String),
    ],
    stderr: "inherit",
  }).output();
  if (!success) throw new Error(`The load program ${name} failed`);
  return new TextDecoder().decode(stdout).trim();
}

function scriptPath(name: string): string {
  return new URL(`./load/${name}`, import.meta.url).pathname;
}
