/** The work that forwarders are measured with, each with its server and its load. */
import { type Forwarder, scriptLine, spawn, startScript } from "./forwarders.ts";
import { unusedPort } from "../support/drivers/unused_port.ts";

/** Work that was done. */
export interface DoneWork {
  readonly units: number;
  readonly seconds: number;
}

/** A server that work ends at. */
export interface WorkServer extends AsyncDisposable {
  readonly port: number;
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
  startServer(folder: string): Promise<WorkServer>;
  /** Works for about this number of seconds. */
  run(forwarder: Forwarder, seconds: number): Promise<DoneWork>;
}

const STREAM_BYTES_PER_SECOND = 1e9;

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
  const args = ["-t1", "-c16", `-d${Math.ceil(seconds)}s`, ...extra, `http://${hostname}:${port}/`];
  const { stdout } = await new Deno.Command("wrk", { args }).output();
  const text = new TextDecoder().decode(stdout);
  const found = /(\d+) requests in ([\d.]+)s/.exec(text);
  if (!found) throw new Error(`Cannot read what wrk printed: ${text}`);
  if (/Non-2xx/.test(text)) throw new Error(`Requests failed: ${text}`);
  return { units: Number(found[1]), seconds: Number(found[2]) };
}

async function runScript(name: string, args: readonly (string | number)[]): Promise<string> {
  const { success, stdout } = await new Deno.Command(Deno.execPath(), {
    args: scriptLine(name, args),
    stderr: "inherit",
  }).output();
  if (!success) throw new Error(`The load program ${name} failed`);
  return new TextDecoder().decode(stdout).trim();
}
