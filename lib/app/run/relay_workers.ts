import type { RelayOptions } from "../../config/relay_options.ts";
import type { Logger } from "../../log/logger.ts";
import type { Clock } from "../../os/clock.ts";
import type { Network } from "../../os/network.ts";
import type { OpenFiles } from "../../os/open_files.ts";
import { shareRefusal } from "../../os/shared_listener.ts";
import { type RelayWorkers, type SpawnWorker, WorkerPool } from "../../os/worker_pool.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";

interface RelayWorkersDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly network: Network;
  readonly openFiles: OpenFiles;
  /** @default {there are no workers} */
  readonly spawnWorker?: SpawnWorker;
  readonly process: { readonly cores?: number };
}

/** With `auto`, more workers than this would mostly cost memory. */
const MOST_WORKERS = 4;

/**
 * Makes the workers of a run, without starting them; `undefined` if the main thread is to forward, as
 * in every mode but userspace.
 */
export function createRelayWorkers(
  { clock, logger, network, openFiles, spawnWorker, process }: RelayWorkersDependencies,
  { mode, relay }: { readonly mode: BackendMode; readonly relay: RelayOptions },
): RelayWorkers | undefined {
  const count = workerCount(relay.userspaceWorkers, process.cores ?? 1);
  if (!MODE_TRAITS[mode].forwardsItself || count === 1 || spawnWorker === undefined) {
    return undefined;
  }
  const reason = shareRefusal(network, "IPv4");
  if (reason !== undefined) {
    logger.warn("Cannot share listening sockets between workers; one thread forwards", {
      ...{ workers: count, reason },
    });
    return { kind: "refused", reason };
  }
  const pool = new WorkerPool({ clock, logger, spawn: spawnWorker }, { count });
  return { kind: "threads", pool, openFiles: openFiles.share(count) };
}

/** Returns the number of threads that forward. */
export function workerCount(wanted: RelayOptions["userspaceWorkers"], cores: number): number {
  return wanted === "auto" ? Math.max(1, Math.min(cores, MOST_WORKERS)) : wanted;
}
