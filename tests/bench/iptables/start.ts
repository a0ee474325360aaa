// deno-lint-ignore-file no-console -- its output is what it is for
/**
 * A program in a network namespace: real API machinery with so many Services, and kube-relay in
 * iptables mode started on it. Prints what that took, and what one change takes then.
 *
 * @module
 */
import { requestStatus } from "../../../lib/app/control_client.ts";
import type { StatusFamily } from "../../../lib/app/status_report.ts";
import { buildApiserver } from "../../conformance/build_apiserver.ts";
import { type ApiMachinery, startApiMachinery } from "../../support/api_machinery.ts";
import { eventually } from "../../support/eventually.ts";
import { writeKubeconfig } from "../../support/kubeconfig_file.ts";
import { freePort, relayCommand, spawn } from "../forwarders.ts";
import { cpuSeconds, residentMiB } from "../process_usage.ts";
import { serviceObjects } from "../service_manifest.ts";
import { percentile } from "../statistics.ts";
import { BENCH_PORT } from "./agent_protocol.ts";
import { benchClusterIp, benchEndpoints, benchServiceName, POD_CIDR } from "./bench_services.ts";

/** What it prints, as JSON. */
export interface StartFigures {
  readonly services: number;
  /** Seconds from the start of the process until the last Service answers. */
  readonly secondsToProgrammed: number;
  /** Milliseconds of the sync that wrote them, the tool's included. */
  readonly syncMs: number;
  /** CPU of kube-relay and of the tools that it ran, until then. */
  readonly cpuSeconds: number;
  readonly residentMiB: number;
  readonly peakMiB: number;
  readonly largestStallMs: number;
  /** Median milliseconds of a sync of one changed endpoint, and the most lines of one. */
  readonly changeMs: number;
  readonly changeLines: number;
}

const NODE = "bench-node";
const CHANGES = 10;
const DEADLINE = { deadlineMs: 240_000 };

if (import.meta.main) {
  const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
  try {
    console.log(JSON.stringify(await measure(folder, Number(Deno.args[0]))));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  Deno.exit(0);
}

async function measure(folder: string, services: number): Promise<StartFigures> {
  const program = await buildApiserver();
  if (program === undefined) throw new Error("Cannot build tests/apiserver: Go is missing");
  await using machinery = await startApiMachinery({ program });
  const objects = Array.from({ length: services }, (_, index) => objectsOf(index)).flat();
  await machinery.admin.createAll([nodeObject(), ...objects]);
  const flags = [`--kubeconfig=${await kubeconfigOf(machinery, folder)}`];
  using listener = Deno.listen({ hostname: "0.0.0.0", port: BENCH_PORT });
  void acceptAll(listener);
  const started = performance.now();
  await using relay = startRelay(folder, flags);
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
  return {
    services,
    secondsToProgrammed,
    syncMs: first.durationMs,
    cpuSeconds: cpu,
    residentMiB: memory.now,
    peakMiB: memory.peak,
    largestStallMs: largestEventLoopDelayMs,
    changeMs: percentile(changes.map(({ durationMs }) => durationMs), 0.5),
    changeLines: Math.max(...changes.map(({ operations }) => operations.lines ?? 0)),
  };
}

type Sync = NonNullable<StatusFamily["lastSync"]>;
type Relay = ReturnType<typeof startRelay>;

function startRelay(folder: string, flags: readonly string[]) {
  const { program, args } = relayCommand();
  const socket = `${folder}/control.sock`;
  const relay = spawn(program, [
    ...args,
    "--mode=iptables",
    `--hostname-override=${NODE}`,
    `--cluster-cidr=${POD_CIDR}`,
    // Changes follow each other faster here than the default lets syncs do.
    "--iptables-min-sync-period=10ms",
    `--control-socket=${socket}`,
    `--state-dir=${folder}/state`,
    `--healthz-bind-address=127.0.0.1:${freePort()}`,
    `--metrics-bind-address=127.0.0.1:${freePort()}`,
    ...flags,
  ]);
  const status = () => requestStatus(socket, { brief: true });
  const lastSync = async (): Promise<Sync | undefined> => {
    const { families = [] } = await status().catch(() => ({ families: undefined }));
    return families.find(({ family }) => family === "IPv4")?.lastSync;
  };
  return Object.assign(relay, { status, lastSync });
}

/** Gives some Services other endpoints, one after the other. */
async function measureChanges(
  machinery: ApiMachinery,
  { relay, services }: { readonly relay: Relay; readonly services: number },
): Promise<readonly Sync[]> {
  const syncs: Sync[] = [];
  for (let change = 1; change <= CHANGES; change++) {
    const before = await relay.lastSync();
    await machinery.update(objectsOf((change * 997) % services, change)[1]);
    syncs.push(
      await eventually("the change is synced", async () => {
        const sync = await relay.lastSync();
        return sync !== undefined && sync.at !== before?.at && sync;
      }),
    );
  }
  return syncs;
}

function objectsOf(index: number, version = 0) {
  return serviceObjects({
    name: benchServiceName(index),
    clusterIp: benchClusterIp(index),
    protocol: "TCP",
    endpoints: benchEndpoints(index, version).map((endpoint) => endpoint.split(":")[0]!),
    endpointPort: BENCH_PORT,
    nodeName: "another-node",
  });
}

function nodeObject() {
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: NODE },
    status: { addresses: [{ type: "InternalIP", address: "10.0.0.1" }] },
  };
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
