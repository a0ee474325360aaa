/** The work that forwarders are measured with, each with its server and its load. */
import { type Forwarder, scriptLine, spawn, startScript } from "./forwarders.ts";
import { Namespace } from "../support/stages/netns.ts";
import { unusedPort } from "../support/drivers/unused_port.ts";

/** Work that was done. */
export interface DoneWork {
  readonly units: number;
  readonly seconds: number;
  /** Within which 99 of 100 requests were answered, if that was measured. */
  readonly p99Ms?: number;
}

/** A server that work ends at. */
export interface WorkServer extends AsyncDisposable {
  readonly port: number;
  /** @default {127.0.0.1} */
  readonly hostname?: string;
  /** Where it expects a PROXY protocol header. @default {`port`: it does not matter} */
  readonly proxyPort?: number;
}

/** A kind of work. */
export interface Workload {
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
  /** Whether it needs a network namespace, and so root. */
  readonly needsRoot?: boolean;
  startServer(folder: string): Promise<WorkServer>;
  /** Works for about this number of seconds. */
  run(forwarder: Forwarder, seconds: number): Promise<DoneWork>;
}

/** Every kind of work. */
export const WORKLOADS: readonly Workload[] = [
  {
    name: "TCP, one stream",
    protocol: "TCP",
    unit: "Gbit/s",
    cpuUnit: "CPU s/GB",
    cpuScale: 1e9,
    rateScale: 8 / 1e9,
    aims: { haproxy: 1 },
    startServer: () => startScript("tcp_source.ts"),
    run: (forwarder, seconds) => runStream(forwarder, seconds, 1e9),
  },
  {
    name: "TCP, one stream, MTU 1,500 at the endpoint",
    needsRoot: true,
    protocol: "TCP",
    unit: "Gbit/s",
    cpuUnit: "CPU s/GB",
    cpuScale: 1e9,
    rateScale: 8 / 1e9,
    aims: { haproxy: 1 },
    startServer: startRemoteSource,
    run: (forwarder, seconds) => runStream(forwarder, seconds, 1e8),
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
    run: (forwarder, seconds) => runWrk(forwarder, seconds, ["-c16"]),
  },
  {
    name: "HTTP requests, 512 connections kept",
    protocol: "TCP",
    unit: "requests/s",
    cpuUnit: "CPU µs/request",
    cpuScale: 1e6,
    rateScale: 1,
    aims: { haproxy: 1.1 },
    startServer: startHttpServer,
    run: (forwarder, seconds) => runWrk(forwarder, seconds, ["-c512"]),
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
    run: (forwarder, seconds) => runWrk(forwarder, seconds, ["-c16", "-H", "Connection: close"]),
  },
  {
    // The server answers with an error of HTTP, which costs the forwarder as much as one of TLS.
    name: "TLS connections, a ClientHello each",
    protocol: "TCP",
    unit: "connections/s",
    cpuUnit: "CPU µs/connection",
    cpuScale: 1e6,
    rateScale: 1,
    aims: { "kube-relay, server names": 1.3 },
    startServer: startHttpServer,
    async run({ hostname, port }, duration) {
      const text = await runScript("client_hellos.ts", [hostname, port, duration]);
      const { connections, seconds } = JSON.parse(text) as { connections: number; seconds: number };
      return { units: connections, seconds };
    },
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
    run: (forwarder, seconds) => runDatagrams(forwarder, seconds, []),
  },
  {
    name: "UDP flows of one round trip each",
    protocol: "UDP",
    unit: "flows/s",
    cpuUnit: "CPU µs/flow",
    cpuScale: 1e6,
    rateScale: 1,
    aims: { "nginx stream": 1.3 },
    startServer: () => startScript("udp_echo.ts"),
    run: (forwarder, seconds) => runDatagrams(forwarder, seconds, ["64", "churn"]),
  },
];

async function runStream(
  { hostname, port }: Forwarder,
  duration: number,
  bytesPerSecond: number,
): Promise<DoneWork> {
  const bytes = Math.round(duration * bytesPerSecond);
  const seconds = Number(await runScript("tcp_sink.ts", [hostname, port, bytes]));
  return { units: bytes, seconds };
}

async function runDatagrams(
  { hostname, port }: Forwarder,
  duration: number,
  extra: readonly string[],
): Promise<DoneWork> {
  const text = await runScript("udp_round_trips.ts", [hostname, port, duration, ...extra]);
  const { roundTrips, seconds } = JSON.parse(text) as { roundTrips: number; seconds: number };
  return { units: roundTrips, seconds };
}

/** The source in a network namespace of its own, behind a pair of veth without segmentation offload. */
async function startRemoteSource(): Promise<WorkServer> {
  const namespace = await Namespace.create("source");
  const own = ["ip", "-n", namespace.name, "link"];
  const [here, there] = ["10.99.0.1/30", "10.99.0.2/30"];
  const mtu = ["mtu", "1500", "gso_max_segs", "1"];
  for (
    const [program = "", ...args] of [
      ["ip", "link", "add", "bench0", "type", "veth", "peer", "bench1", "netns", namespace.name],
      ["ip", "addr", "add", here, "dev", "bench0"],
      ["ip", "link", "set", "bench0", ...mtu, "up"],
      ["ip", "-n", namespace.name, "addr", "add", there, "dev", "bench1"],
      [...own, "set", "bench1", ...mtu, "up"],
    ]
  ) await new Deno.Command(program, { args }).output();
  const server = await startScript("tcp_source.ts", ["10.99.0.2"], namespace.name);
  return {
    ...{ hostname: "10.99.0.2", port: server.port },
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await Namespace.removeAll([namespace]);
    },
  };
}

async function startHttpServer(
  folder: string,
): Promise<WorkServer> {
  const [port, proxyPort] = [unusedPort(), unusedPort()];
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
  server {
    listen 127.0.0.1:${port};
    listen 127.0.0.1:${proxyPort} proxy_protocol;
    location / { return 200 "hello\\n"; }
  }
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
  return { ...server, port, proxyPort };
}

async function runWrk(
  { hostname, port }: Forwarder,
  seconds: number,
  extra: readonly string[],
): Promise<DoneWork> {
  const args = [
    "-t1",
    "--latency",
    `-d${Math.ceil(seconds)}s`,
    ...extra,
    `http://${hostname}:${port}/`,
  ];
  const { stdout } = await new Deno.Command("wrk", { args }).output();
  const text = new TextDecoder().decode(stdout);
  const found = /(\d+) requests in ([\d.]+)s/.exec(text);
  if (!found) throw new Error(`Cannot read what wrk printed: ${text}`);
  if (/Non-2xx/.test(text)) throw new Error(`Requests failed: ${text}`);
  const [, late = "0", scale = "ms"] = /99%\s+([\d.]+)(\w+)/.exec(text) ?? [];
  const p99Ms = Number(late) * ({ us: 0.001, s: 1000 }[scale] ?? 1);
  return { units: Number(found[1]), seconds: Number(found[2]), p99Ms };
}

async function runScript(name: string, args: readonly (string | number)[]): Promise<string> {
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: scriptLine(name, args),
    stderr: "inherit",
  }).output();
  if (!success) throw new Error(`The load program ${name} failed`);
  return new TextDecoder().decode(stdout).trim();
}
