/**
 * The forwarders that are compared: each takes connections or datagrams on one loopback address and
 * passes them on to one server.
 */
import { stringify } from "@std/yaml";
import { LIBC_PATHS } from "../../backends/userspace/syscalls/libc.ts";
import { permissionFlags } from "../../lib/os/permissions.ts";
import { type BenchService, servicePort, writeServiceManifest } from "./service_manifest.ts";
import { ownFlags } from "../support/drivers/own_flags.ts";
import { unusedPort } from "../support/drivers/unused_port.ts";

/** A feature, and how it is switched on. */
interface RelayFeature {
  readonly name: string;
  /** @default {neither annotations nor flags} */
  readonly annotations?: (task: ForwardTask) => Readonly<Record<string, string>>;
  readonly flags?: readonly string[];
  /** The endpoint gets a PROXY protocol header. */
  readonly sendsProxyHeader?: boolean;
  /** The clients use an external IP of the Service, which may be shared. */
  readonly isExternal?: boolean;
  /** Whether it is a feature of the whole node that needs root. */
  readonly needsRoot?: boolean;
}

/** Above what a benchmark reaches. */
const MANY = "1000000";

function limited(): Readonly<Record<string, string>> {
  return annotated({
    "max-connections": MANY,
    "max-connections-per-client": MANY,
    "max-new-connections-per-second": MANY,
    "idle-timeout": "10m",
    "max-lifetime": "1h",
  });
}

/** Counted with kube-relay, whose child it is. */
const DATA_PROCESS = ["--userspace-engine=syscalls", "--userspace-workers=1"];

/** Every feature that may cost CPU for each connection, request or datagram. */
const RELAY_FEATURES: readonly RelayFeature[] = [
  { name: "least-connections", annotations: () => annotated({ balance: "least-connections" }) },
  { name: "source-hash", annotations: () => annotated({ balance: "source-hash" }) },
  { name: "limits", annotations: limited },
  { name: "limits, 2 workers", annotations: limited, flags: ["--userspace-workers=2"] },
  {
    name: "PROXY v2",
    sendsProxyHeader: true,
    annotations: ({ protocol }) =>
      annotated(
        protocol === "TCP" ? { "send-proxy-protocol": "v2" } : { "send-proxy-protocol-udp": "v2" },
      ),
  },
  {
    name: "health checks",
    annotations: ({ serverPort }) =>
      annotated({
        "health-check": "tcp",
        "health-check-port": String(serverPort),
        "health-check-interval": "1s",
      }),
  },
  {
    name: "server names",
    isExternal: true,
    annotations: ({ protocol }) =>
      annotated(protocol === "TCP" ? { sni: `${SERVER_NAME}, *` } : {}),
  },
  { name: "policies", flags: ["--network-policy"], needsRoot: true },
  { name: "service counters", flags: ["--service-counters"] },
  { name: "2 workers", flags: ["--userspace-workers=2"] },
  { name: "data process", flags: DATA_PROCESS },
  { name: "data process, limits", annotations: limited, flags: DATA_PROCESS },
];

/** The name that clients with a ClientHello ask for. */
export const SERVER_NAME = "shop.example.com";

/** The manifests of a Service with a feature. */
function featureManifest(task: ForwardTask, feature: RelayFeature | undefined): string {
  const { clusterIp, protocol, server, serverPort, proxyPort } = task;
  const service: BenchService = {
    ...{ name: "bench", clusterIp, protocol, endpoints: [server] },
    endpointPort: feature?.sendsProxyHeader ? proxyPort : serverPort,
    ...(feature?.annotations && { annotations: feature.annotations(task) }),
    ...(feature?.isExternal && { externalIp: externalIpOf(task) }),
  };
  return writeServiceManifest(service) + (feature?.needsRoot ? policyManifest(task) : "");
}

function externalIpOf({ clusterIp }: ForwardTask): string {
  return clusterIp.replace(/^127\.96\./, "127.97.");
}

/** A policy that selects the endpoint and admits the clients by one of several rules. */
function policyManifest({ protocol, server }: ForwardTask): string {
  const metadata = { namespace: "default", name: "bench" };
  const labels = { app: "bench" };
  const objects = [
    { apiVersion: "v1", kind: "Namespace", metadata: { name: "default" } },
    {
      ...{ apiVersion: "v1", kind: "Pod", metadata: { ...metadata, labels } },
      spec: { nodeName: "another-node" },
      status: { phase: "Running", podIP: server, podIPs: [{ ip: server }] },
    },
    {
      ...{ apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata },
      spec: {
        podSelector: { matchLabels: labels },
        policyTypes: ["Ingress"],
        ingress: [
          { ports: [{ protocol, port: servicePort(protocol) }] },
          { from: [{ podSelector: { matchLabels: { app: "friend" } } }] },
          { from: [{ ipBlock: { cidr: "127.0.0.0/8" } }] },
        ],
      },
    },
  ];
  return objects.map((object) => `---\n${stringify(object)}`).join("");
}

function annotated(values: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [`kube-relay.io/${name}`, value]),
  );
}

/** The forwarding to set up. */
export interface ForwardTask {
  readonly protocol: "TCP" | "UDP";
  /** The server's address and port. */
  readonly server: string;
  readonly serverPort: number;
  /** The address of the Service, for kube-relay. */
  readonly clusterIp: string;
  /** The same server, where it expects a PROXY protocol header. */
  readonly proxyPort: number;
  /** Folder for configuration files; removed by the caller. */
  readonly folder: string;
}

/** A forwarder that is ready. */
export interface Forwarder extends AsyncDisposable {
  readonly hostname: string;
  readonly port: number;
  /** The process whose CPU time is counted. */
  readonly pid: number;
}

/** A way to forward. */
export interface ForwarderKind {
  readonly name: string;
  /** The feature that kube-relay has here, for a comparison with kube-relay without it. */
  readonly feature?: RelayFeature;
  readonly protocols: readonly ("TCP" | "UDP")[];
  start(task: ForwardTask): Promise<Forwarder>;
}

/** Every forwarder. Each of them works with one thread. */
export const FORWARDERS: readonly ForwarderKind[] = [
  {
    name: "kube-relay",
    protocols: ["TCP", "UDP"],
    start: (task) => startKubeRelay(task, undefined),
  },
  ...RELAY_FEATURES.map((feature): ForwarderKind => ({
    name: `kube-relay, ${feature.name}`,
    feature,
    protocols: ["TCP", "UDP"],
    start: (task) => startKubeRelay(task, feature),
  })),
  {
    name: "syscalls engine",
    protocols: ["TCP", "UDP"],
    start: (task) => startLoop("syscall_loop.ts", task),
  },
  {
    name: "syscalls engine, limits, affinity, counters",
    protocols: ["TCP", "UDP"],
    start: (task) => startLoop("syscall_loop.ts", task, "full"),
  },
  {
    name: "bare Deno loop",
    protocols: ["TCP", "UDP"],
    start: (task) => startLoop("deno_loop.ts", task),
  },
  { name: "haproxy", protocols: ["TCP"], start: (task) => startHaproxy(task, false) },
  { name: "haproxy, server names", protocols: ["TCP"], start: (task) => startHaproxy(task, true) },
  { name: "nginx stream", protocols: ["UDP"], start: startNginx },
  { name: "nginx stream, server names", protocols: ["TCP"], start: startNginx },
];

async function startKubeRelay(
  task: ForwardTask,
  feature: RelayFeature | undefined,
): Promise<Forwarder> {
  const manifests = `${task.folder}/manifests`;
  await Deno.mkdir(manifests, { recursive: true });
  await Deno.writeTextFile(
    `${manifests}/service.yaml`,
    featureManifest(task, feature),
  );
  const { program, args } = relayCommand();
  const forwarder = spawn(program, [
    ...args,
    "--mode=userspace",
    `--manifests=${manifests}`,
    ...ownFlags(task.folder),
    ...feature?.flags ?? [],
  ]);
  const hostname = feature?.isExternal ? externalIpOf(task) : task.clusterIp;
  return await ready({ ...forwarder, hostname, port: servicePort(task.protocol) }, task);
}

/** Starts a loop of this folder: the least that a forwarder with that network API can do. */
async function startLoop(name: string, task: ForwardTask, ...args: string[]): Promise<Forwarder> {
  const loop = await startScript(name, [task.protocol, task.server, task.serverPort, ...args]);
  return await ready({ ...loop, hostname: "127.0.0.1" }, task);
}

/** Starts a load program that prints its port. */
export async function startScript(
  name: string,
  args: readonly (string | number)[] = [],
  namespace?: string,
): Promise<{ readonly port: number; readonly pid: number } & AsyncDisposable> {
  const line = [Deno.execPath(), ...scriptLine(name, args)];
  if (namespace) line.unshift("ip", "netns", "exec", namespace);
  const child = new Deno.Command(line[0]!, {
    args: line.slice(1),
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const reader = child.stdout.getReader();
  const port = Number(new TextDecoder().decode((await reader.read()).value));
  if (!port) throw new Error(`${name} ended with code ${(await child.status).code} and no port`);
  return {
    port,
    pid: child.pid,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await reader.cancel();
      await child.status;
    },
  };
}

/** The arguments of Deno for a program of the folder `load`. */
export function scriptLine(name: string, args: readonly (string | number)[]): string[] {
  const path = new URL(`./load/${name}`, import.meta.url).pathname;
  const flags = ["--quiet", "--no-check", "--unstable-net", "--allow-net"];
  flags.push(`--allow-ffi=${LIBC_PATHS.join(",")}`);
  return ["run", ...flags, path, ...args.map(String)];
}

const V8_FLAGS = "--max-semi-space-size=2,--heap-growing-percent=30,--expose-gc";

/** The built executable if `KUBE_RELAY` names one, else the source with this Deno. */
export function relayCommand(): { readonly program: string; readonly args: readonly string[] } {
  const built = Deno.env.get("KUBE_RELAY");
  if (built) return { program: built, args: [] };
  const main = new URL("../../main.ts", import.meta.url).pathname;
  return {
    program: Deno.execPath(),
    // As compile.sh has it: it decides how much memory is resident.
    args: ["run", "--quiet", `--v8-flags=${V8_FLAGS}`, ...permissionFlags(), main],
  };
}

async function startHaproxy(task: ForwardTask, byName: boolean): Promise<Forwarder> {
  const port = unusedPort();
  const path = `${task.folder}/haproxy.cfg`;
  await Deno.writeTextFile(
    path,
    `global
  nbthread 1
  maxconn 8192
  tune.bufsize 16384
defaults
  mode tcp
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend f
  bind 127.0.0.1:${port}
${byName ? HAPROXY_NAMES : ""}  default_backend b
backend b
  server s ${task.server}:${task.serverPort}
`,
  );
  const forwarder = spawn("haproxy", ["-db", "-q", "-f", path]);
  return await ready({ ...forwarder, hostname: "127.0.0.1", port }, task);
}

const HAPROXY_NAMES = `  tcp-request inspect-delay 3s
  tcp-request content accept if { req_ssl_hello_type 1 }
  use_backend b if { req_ssl_sni -i ${SERVER_NAME} }
`;

async function startNginx(task: ForwardTask): Promise<Forwarder> {
  const port = unusedPort();
  const isUdp = task.protocol === "UDP";
  const server = `${task.server}:${task.serverPort}`;
  const path = `${task.folder}/nginx-stream.conf`;
  await Deno.writeTextFile(
    path,
    `load_module /usr/lib/nginx/modules/ngx_stream_module.so;
worker_processes 1;
master_process off;
daemon off;
worker_rlimit_nofile 200000;
pid ${task.folder}/nginx-stream.pid;
error_log ${task.folder}/nginx-stream.log crit;
events { worker_connections 100000; }
stream {
  map $ssl_preread_server_name $server {
    ${SERVER_NAME} ${server};
    default ${server};
  }
  server {
    listen 127.0.0.1:${port}${isUdp ? " udp" : ""};
    ${isUdp ? "" : "ssl_preread on;"}
    proxy_pass ${isUdp ? server : "$server"};
    proxy_timeout 10s;
  }
}
`,
  );
  const forwarder = spawn("nginx", ["-c", path]);
  return await ready({ ...forwarder, hostname: "127.0.0.1", port }, task);
}

/** Starts a program that ends with its scope, and its children with it. */
export function spawn(
  program: string,
  args: readonly string[],
): { readonly pid: number } & AsyncDisposable {
  const child = new Deno.Command(program, {
    args: [...args],
    stdin: "null",
    stdout: "null",
    stderr: Deno.env.get("BENCH_VERBOSE") ? "inherit" : "null",
  }).spawn();
  return {
    pid: child.pid,
    async [Symbol.asyncDispose]() {
      try {
        child.kill("SIGTERM");
      } catch {
        // It has ended by itself.
      }
      await child.status;
    },
  };
}

/** Waits until the forwarder passes something on. */
async function ready(forwarder: Forwarder, { protocol }: ForwardTask): Promise<Forwarder> {
  const deadline = performance.now() + 20_000;
  for (;;) {
    if (protocol === "TCP" && await accepts(forwarder)) return forwarder;
    if (protocol === "UDP" && await answers(forwarder)) return forwarder;
    if (performance.now() > deadline) {
      await forwarder[Symbol.asyncDispose]();
      throw new Error(`Nothing is forwarded at ${forwarder.hostname}:${forwarder.port} after 20 s`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function accepts({ hostname, port }: Forwarder): Promise<boolean> {
  try {
    (await Deno.connect({ hostname, port })).close();
    return true;
  } catch {
    return false;
  }
}

async function answers({ hostname, port }: Forwarder): Promise<boolean> {
  const socket = Deno.listenDatagram({ transport: "udp", hostname: "127.0.0.1", port: 0 });
  let timer: ReturnType<typeof setTimeout> | undefined;
  try {
    await socket.send(new Uint8Array([1]), { transport: "udp", hostname, port });
    const silence = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(false), 100);
    });
    return await Promise.race([socket.receive().then(() => true, () => false), silence]);
  } finally {
    clearTimeout(timer);
    socket.close();
  }
}
