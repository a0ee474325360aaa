import type { LoadedConfiguration } from "../../config/load.ts";
import type { CleanupReport } from "../../engine/data_plane.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { DATA_PROTOCOL, type DataSettings } from "../../os/data_process_protocol.ts";
import { DataProcesses } from "../../os/data_processes.ts";
import type { OpenFiles } from "../../os/open_files.ts";
import { shareRefusal } from "../../os/shared_listener.ts";
import { THREAD_MEMORY } from "../../os/shared_memory.ts";
import { type RelayWorkers, WorkerPool } from "../../os/worker_pool.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { ProbeResult } from "../../proxy/service_mode.ts";
import type { Dependencies, RunConfiguration } from "../dependencies.ts";

/** With `auto`, more workers than this would mostly cost memory. */
const MAX_WORKERS = 4;
/** Users that data processes of root take, the first that there is. */
const USERS = ["kube-relay", "nobody"];
const NO_PROGRAM = "this build has no data processes";
const NOBODY = [65_534, 65_534] as const;

type Edges = Dependencies & { readonly logger: Logger; readonly openFiles: OpenFiles };

/** The folder of the sockets of data processes: another control socket has another one, wherever it is. */
export function dataFolder({ controlSocket }: { readonly controlSocket: string }): string {
  return `${controlSocket}.kube-relay-data`;
}

/**
 * Makes the workers of a run, threads or data processes, and takes over those processes that run. Starts
 * none. `undefined` if the main thread is to forward, as in every mode but userspace.
 */
export async function createRelayWorkers(
  edges: Edges,
  configuration: RunConfiguration,
): Promise<RelayWorkers | undefined> {
  const { clock, logger, network, openFiles, spawnWorker, process: { cores = 1 } } = edges;
  const { mode, relay: { userspaceEngine, userspaceWorkers: wanted } } = configuration;
  // Those of an earlier run would listen at the same addresses.
  const { relay } = configuration;
  const retire = () =>
    edges.dataProgram && DataProcesses.retire(edges, dataFolder(relay), relay.drainTimeoutMs);
  if (!MODE_TRAITS[mode].forwardsItself) {
    await retire();
    return undefined;
  }
  const count = wanted === "auto" ? Math.max(1, Math.min(cores, MAX_WORKERS)) : wanted;
  const reason = shareRefusal(network, "IPv4");
  let note: string | undefined;
  if (userspaceEngine !== "deno") {
    const { processes, refusal } = reason === undefined
      ? await openDataProcesses(edges, configuration, count)
      : { processes: undefined, refusal: `sockets cannot be shared: ${reason}` };
    if (processes) {
      const pool = new WorkerPool({ clock, logger }, processes, { count });
      return { kind: "workers", pool, openFiles: openFiles.share(count) };
    }
    if (userspaceEngine === "syscalls") {
      throw new Error(`Cannot use --userspace-engine=syscalls: ${refusal}`);
    }
    logger.warn("System calls cannot be used; the engine of Deno forwards", { reason: refusal });
    note = `, as system calls cannot be used: ${refusal}`;
  }
  await retire();
  if (count === 1 || !spawnWorker) return note ? { kind: "refused", note } : undefined;
  if (reason !== undefined) {
    const message = "Cannot share listening sockets between workers; one thread forwards";
    logger.warn(message, { workers: count, reason });
    return {
      kind: "refused",
      note: note ?? `, as sockets cannot be shared between workers: ${reason}`,
    };
  }
  const carrier = {
    ...{ kind: "threads", spawn: spawnWorker, memory: THREAD_MEMORY } as const,
    now: () => clock.now(),
  };
  const pool = new WorkerPool({ clock, logger }, carrier, { count });
  return { kind: "workers", pool, openFiles: openFiles.share(count), ...(note && { note }) };
}

async function openDataProcesses(
  edges: Edges,
  { families, proxy, relay }: RunConfiguration,
  count: number,
): Promise<
  | { readonly processes: DataProcesses; readonly refusal?: undefined }
  | { readonly processes?: undefined; readonly refusal: string }
> {
  const { dataProgram: program, openFiles: { limit, ports } } = edges;
  if (!program) return { refusal: NO_PROGRAM };
  const { drainTimeoutMs, maxConnectionsPerService, unixSocketFolders } = relay;
  const { healthzBindAddress, metricsBindAddress, networkPolicy } = proxy;
  const more = [
    ...[families, relay.udpTimeoutMs, maxConnectionsPerService, relay.serviceCounters],
    ...[networkPolicy.enabled, healthzBindAddress, metricsBindAddress],
  ];
  const settings: DataSettings = {
    ...{ protocol: DATA_PROTOCOL, count, unixSocketFolders },
    openFiles: { limit, ports: Math.floor(ports / count) },
    more: JSON.stringify(more),
  };
  // Another user might not be let in to the Unix sockets that endpoints are.
  const user = edges.process.uid === 0 && unixSocketFolders.length === 0
    ? await numbersOfUser()
    : undefined;
  try {
    const folder = dataFolder(relay);
    const options = { folder, program, settings, drainTimeoutMs, user };
    const processes = await DataProcesses.open(edges, options);
    // Those that run have shown it.
    const refusal = processes.found.size > 0
      ? undefined
      : await DataProcesses.tryOut(edges, program);
    if (refusal === undefined) return { processes };
    processes.close();
    return { refusal };
  } catch (error) {
    return { refusal: messageOf(error) };
  }
}

/** Whether a data process could forward here. */
export async function probeDataProcess(edges: Dependencies): Promise<ProbeResult> {
  const { dataProgram } = edges;
  const refusal = dataProgram ? await DataProcesses.tryOut(edges, dataProgram) : NO_PROGRAM;
  const feature = "forward by system calls";
  return refusal === undefined
    ? { feature, available: true, required: false, detail: "a connection to itself was relayed" }
    : {
      ...{ feature, available: false, required: false, detail: refusal },
      cure: "install util-linux (setpriv), and permit processes to load libc and to map memory",
      lost: "--userspace-engine=auto forwards in this process, as deno does",
    };
}

/** Ends the data processes of earlier runs; none listens or forwards afterwards. */
export async function cleanUpDataProcesses(
  edges: Omit<Edges, "openFiles">,
  { relay }: LoadedConfiguration,
): Promise<CleanupReport> {
  const isDry = relay.dryRun;
  const { ended, failed } = await DataProcesses.cleanUp(edges, dataFolder(relay), { isDry });
  return { removed: ended.map((pid) => `data process ${pid} and its connections`), failed };
}

async function numbersOfUser(): Promise<readonly [uid: number, gid: number]> {
  const text = await Deno.readTextFile("/etc/passwd").catch(() => "");
  for (const user of USERS) {
    const [, uid, gid] = new RegExp(`^${user}:[^:]*:(\\d+):(\\d+):`, "m").exec(text) ?? [];
    if (gid !== undefined) return [Number(uid), Number(gid)];
  }
  return NOBODY;
}
