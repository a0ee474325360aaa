// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Runs userspace mode on loopback for a long time, with connections, UDP flows and changes of endpoints,
 * and fails if a request is lost or if memory or open files grow.
 *
 * `deno task soak:userspace [MINUTES] [--workers=N] [--seed=N] [--sabotage]`; `--workers` is passed
 * on as `--userspace-workers`. With `--sabotage` the servers end connections early: then it must fail.
 */
import Table from "cli-table3";
import { stringify } from "@std/yaml";
import { residentMiB } from "../bench/process_usage.ts";
import { chooseSeed, randomFrom } from "../support/builders/seeded_random.ts";
import { LoopbackRelay } from "../support/stages/loopback_relay.ts";
import { runClients, startEchoServers } from "./soak_load.ts";
import { type Growth, growthOf, type SoakCounts, type SoakSample } from "./soak_counts.ts";

const DEFAULT_MINUTES = 5;
const SAMPLES = 60;
const ROWS = 12;
const CHANGE_MS = 2000;
const ENDPOINTS = [1, 2, 3, 4].map((number) => `127.80.32.${number}`);
const PORT = 18_080;
const [PLAIN, EDGE, DNS] = ["127.80.33.1", "127.80.33.2", "127.80.33.3"];

/** The Services of the soak. */
const SERVICES = [
  { name: "plain", clusterIP: PLAIN, protocol: "TCP", annotations: {} },
  {
    ...{ name: "edge", clusterIP: EDGE, protocol: "TCP" },
    annotations: {
      "kube-relay.io/balance": "least-connections",
      "kube-relay.io/max-connections": "10000",
      "kube-relay.io/idle-timeout": "1m",
    },
  },
  { name: "dns", clusterIP: DNS, protocol: "UDP", annotations: {} },
];

const minutes = Number(Deno.args.find((arg) => !arg.startsWith("--")) ?? DEFAULT_MINUTES);
if (!(minutes > 0)) {
  throw new Error(`Cannot run for ${Deno.args[0]} minutes: give a number above 0`);
}
const seed = Number(valueOf("--seed=") ?? chooseSeed());
const workers = Number(valueOf("--workers=") ?? 1);
console.log(`${minutes} minutes, seed ${seed}`);
Deno.exit(await soak() ? 0 : 1);

function valueOf(flag: string): string | undefined {
  return Deno.args.find((arg) => arg.startsWith(flag))?.slice(flag.length);
}

async function soak(): Promise<boolean> {
  const random = randomFrom(seed);
  const counts: SoakCounts = {
    ...{ tcp: 0, udp: 0, resent: 0, lost: 0, changes: 0 },
  };
  await using servers = new globalThis.AsyncDisposableStack();
  const sabotage = Deno.args.includes("--sabotage");
  const options = { port: PORT, sabotage };
  for (const hostname of ENDPOINTS) {
    for (const server of startEchoServers(hostname, options)) servers.use(server);
  }
  await using relay = await LoopbackRelay.start({
    manifests: { "services.yaml": servicesText(), "endpoints.yaml": endpointsText(ENDPOINTS) },
    args: ["--udp-timeout=5s", `--userspace-workers=${workers}`],
  });
  await relay.settled();
  const stop = new AbortController();
  const { signal } = stop;
  const [tcp, udp] = [[PLAIN, EDGE].map(placeOf), placeOf(DNS)];
  const clients = runClients({ tcp, udp, random, counts, signal });
  const changes = changeEndpoints(relay, { random, counts, signal });
  const samples = await takeSamples(relay, counts);
  stop.abort();
  const [reasons] = await Promise.all([clients, changes]);
  for (const reason of reasons) console.log(`lost: ${reason}`);
  return report(samples, counts);
}

function placeOf(hostname = "") {
  return { hostname, port: PORT };
}

/** Gives all Services other endpoints, of which at least one stays: no request has to be lost. */
async function changeEndpoints(
  relay: LoopbackRelay,
  { random, counts, signal }: {
    readonly random: () => number;
    readonly counts: SoakCounts;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const path = `${relay.folder}/manifests/endpoints.yaml`;
  while (!signal.aborted) {
    await sleep(CHANGE_MS);
    const stays = Math.floor(random() * ENDPOINTS.length);
    const some = ENDPOINTS.filter((_, index) => index === stays || random() < 0.5);
    await Deno.writeTextFile(`${relay.folder}/next`, endpointsText(some));
    await Deno.rename(`${relay.folder}/next`, path);
    counts.changes++;
  }
}

async function takeSamples(
  { pid }: LoopbackRelay,
  counts: Readonly<SoakCounts>,
): Promise<readonly SoakSample[]> {
  const samples: SoakSample[] = [];
  const started = performance.now();
  for (let taken = 0; taken < SAMPLES; taken++) {
    await sleep(minutes * 60_000 / SAMPLES);
    const { stdout } = await new Deno.Command("ls", { args: [`/proc/${pid}/fd`] }).output();
    samples.push({
      ...counts,
      seconds: (performance.now() - started) / 1000,
      residentMiB: (await residentMiB(pid)).now,
      descriptors: new TextDecoder().decode(stdout).trim().split("\n").length,
    });
  }
  return samples;
}

/** Prints the table and the verdict. Returns whether nothing was lost and all is level. */
function report(samples: readonly SoakSample[], { lost, tcp, udp }: SoakCounts): boolean {
  const head = [
    "s",
    "TCP",
    "UDP",
    "sent again",
    "lost",
    "changes",
    "RSS MiB",
    "descriptors",
  ];
  const table = new Table({ head, style: { head: [], border: [] } });
  for (const sample of samples.filter((_, index) => (index + 1) % (SAMPLES / ROWS) === 0)) {
    const { seconds, residentMiB, descriptors, ...each } = sample;
    const done = [each.tcp, each.udp, each.resent, each.lost, each.changes];
    table.push([seconds.toFixed(0), ...done, residentMiB.toFixed(1), descriptors]);
  }
  console.log(table.toString());
  const growths: readonly [string, Growth][] = [
    ["RSS MiB", growthOf(samples.map(({ residentMiB }) => residentMiB))],
    ["descriptors", growthOf(samples.map(({ descriptors }) => descriptors))],
  ];
  for (const [name, { first, before, after, isLevel }] of growths) {
    const verdict = isLevel ? "level" : "GROWS";
    console.log(
      `${name}: ${first.toFixed(1)}, ${before.toFixed(1)} → ${after.toFixed(1)}, ${verdict}`,
    );
  }
  console.log(`lost: ${lost} of ${tcp + udp + lost} requests`);
  const isBusy = tcp > 0 && udp > 0;
  return lost === 0 && isBusy && growths.every(([, { isLevel }]) => isLevel);
}

function servicesText(): string {
  return SERVICES.map(({ name, clusterIP, protocol, annotations }) =>
    `---\n${
      stringify({
        ...{ apiVersion: "v1", kind: "Service", metadata: { name, annotations } },
        spec: { clusterIP, ports: [{ name: "main", port: PORT, protocol }] },
      })
    }`
  ).join("");
}

function endpointsText(addresses: readonly string[]): string {
  return SERVICES.map(({ name, protocol }) =>
    `---\n${
      stringify({
        ...{ apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", addressType: "IPv4" },
        metadata: { name: `${name}-1`, labels: { "kubernetes.io/service-name": name } },
        ports: [{ name: "main", port: PORT, protocol }],
        endpoints: addresses.map((address) => ({ addresses: [address] })),
      })
    }`
  ).join("");
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
