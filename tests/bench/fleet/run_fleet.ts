/**
 * A program in a network namespace: what a fleet of nodes costs an API server, by the bytes and CPU of
 * a start of all at once, of changes, of a quiet time and of a restart of the server.
 */
import { buildApiserver } from "../../conformance/build_apiserver.ts";
import { writeKubeconfig } from "../../support/builders/kubeconfig_file.ts";
import { ServerProcess } from "../../support/drivers/server_process.ts";
import { eventually } from "../../support/eventually.ts";
import { type ApiMachinery, startApiMachinery } from "../../support/stages/api_machinery.ts";
import { apiTraffic } from "../api_traffic.ts";
import { benchServiceCidr } from "../bench_relay.ts";
import { benchObjects } from "../bench_services.ts";
import { runBenchTask } from "../bench_task.ts";
import { cpuSeconds, residentMiB } from "../process_usage.ts";

/** By what nodes are played: reflectors of kube-relay, or of client-go, as kube-proxy has them. */
export const FLEETS = ["kube-relay", "client-go"] as const;

/** One of {@linkcode FLEETS}. */
export type Fleet = typeof FLEETS[number];

/** What is measured. */
export interface FleetTask {
  readonly fleet: Fleet;
  readonly nodes: number;
  readonly services: number;
  readonly changes: number;
  readonly quietSeconds: number;
}

/** The cost of one step. */
export interface FleetCost {
  /** Bytes to all nodes, with TLS. */
  readonly bytes: number;
  /** CPU of the API server, in seconds. */
  readonly cpu: number;
}

/** The output, as JSON. */
export interface FleetFigures {
  readonly connections: number;
  /** Memory that the API server takes more after the start, in MiB. */
  readonly serverMiB: number;
  readonly start: FleetCost;
  readonly changes: FleetCost;
  readonly quiet: FleetCost;
  /** From the restart of the server until half a minute after all nodes were connected again. */
  readonly restart: FleetCost;
  /** From the server's start until all nodes were connected again. */
  readonly secondsToAll: number;
  /** The most connections that were made within a second then. */
  readonly busiestSecond: number;
}

const SETTLE_SECONDS = 3;
const AFTER_RESTART_SECONDS = 30;

async function measure(folder: string, task: FleetTask): Promise<FleetFigures> {
  const { nodes, services, quietSeconds } = task;
  const program = await buildApiserver();
  if (program === undefined) throw new Error("Cannot build tests/apiserver: Go is missing");
  await using machinery = await startApiMachinery({ program });
  const objects = Array.from({ length: services }, (_, index) => benchObjects(index, [0, 1]));
  const nodeObjects = Array.from({ length: nodes }, (_, index) => ({
    ...{ apiVersion: "v1", kind: "Node", metadata: { name: `node-${index}` } },
  }));
  await machinery.admin.createAll([benchServiceCidr(), ...objects.flat(), ...nodeObjects]);
  const port = new URL(machinery.url).port;
  const memory = async () => (await residentMiB(machinery.apiPid)).now;
  const [before, cpuBefore] = [await memory(), await cpuSeconds(machinery.apiPid)];
  await using fleet = await startFleet(folder, program, machinery, task);
  const traffic = () => apiTraffic({ pid: fleet.pid, port });
  const costs = async () => ({
    cpu: await cpuSeconds(machinery.apiPid),
    bytes: (await traffic()).receivedBytes,
  });
  const costOf = async (step: () => Promise<unknown>) => {
    const begin = await costs();
    await step();
    const end = await costs();
    return { bytes: end.bytes - begin.bytes, cpu: end.cpu - begin.cpu };
  };
  const { connections } = await traffic();
  const started = await costs();
  await rest(SETTLE_SECONDS);
  const serverMiB = await memory() - before;
  const changes = await costOf(() => change(machinery, task));
  const quiet = await costOf(() => rest(quietSeconds));
  await machinery.killApi();
  await machinery.restartApi();
  const returned = await comeBack(nodes, async () => (await traffic()).connections);
  await rest(AFTER_RESTART_SECONDS);
  return {
    ...{ connections, serverMiB, changes, quiet, ...returned },
    start: { ...started, cpu: started.cpu - cpuBefore },
    restart: await costs(),
  };
}

async function startFleet(
  folder: string,
  program: string,
  machinery: ApiMachinery,
  { fleet, nodes }: FleetTask,
): Promise<ServerProcess> {
  const { url, ca } = machinery;
  const [kubeconfig, caFile, token] = ["kubeconfig", "ca", "token"].map((name) =>
    `${folder}/${name}`
  );
  await Deno.writeTextFile(caFile!, ca);
  await Deno.writeTextFile(token!, machinery.token());
  await writeKubeconfig(kubeconfig!, { server: url, ca, user: { tokenFile: token! } });
  const log = `${folder}/fleet.log`;
  if (fleet === "client-go") {
    const args = [
      "fleet",
      `--url=${url}`,
      `--ca=${caFile}`,
      `--token=${token}`,
      `--nodes=${nodes}`,
    ];
    return await ServerProcess.start({ program, args, log });
  }
  const nodesProgram = new URL("./run_nodes.ts", import.meta.url).pathname;
  const rights = ["net", "read", "env", "sys", "run"].map((right) => `--allow-${right}`);
  const args = ["run", "--quiet", "--no-prompt", "--no-check", "--unstable-net", ...rights];
  return await ServerProcess.start({
    ...{ program: Deno.execPath(), args: [...args, nodesProgram, kubeconfig!, `${nodes}`], log },
  });
}

/** Changes the endpoints of one Service after another, as fast as the server takes it. */
async function change(machinery: ApiMachinery, { changes, services }: FleetTask): Promise<void> {
  for (let made = 1; made <= changes; made++) {
    await machinery.update(benchObjects((made * 997) % services, [made % 100 + 2, 1])[1]);
  }
  await rest(SETTLE_SECONDS);
}

/** Waits until all nodes are connected; before that, looks how many are as often as it can. */
async function comeBack(
  nodes: number,
  connections: () => Promise<number>,
): Promise<Pick<FleetFigures, "secondsToAll" | "busiestSecond">> {
  const start = performance.now();
  const seen: { readonly second: number; readonly count: number }[] = [];
  await eventually("all nodes are connected again", async () => {
    const count = await connections();
    seen.push({ second: (performance.now() - start) / 1000, count });
    return count >= nodes;
  }, { deadlineMs: 120_000 });
  const madeWithin = ({ second, count }: typeof seen[number]) =>
    count - (seen.findLast((earlier) => earlier.second <= second - 1)?.count ?? 0);
  return { secondsToAll: seen.at(-1)!.second, busiestSecond: Math.max(...seen.map(madeWithin)) };
}

function rest(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

if (import.meta.main) await runBenchTask(measure);
