import { systemClock } from "../../../lib/os/clock.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { takeUncaughtErrors } from "../../../lib/os/uncaught_errors.ts";
import { type PoolMessage, READY, UNCAUGHT } from "../../../lib/os/worker_pool.ts";
import { type WorkerEdges, WorkerFamily } from "./worker_family.ts";
import type { MainMessage, WorkerMessage } from "./worker_protocol.ts";

/** The part of a worker's global scope that is used. */
interface WorkerScope {
  onmessage: ((event: MessageEvent<PoolMessage>) => void) | null;
  postMessage(message: unknown): void;
}

/** Whether this thread was started as a worker. */
export function isWorkerThread(): boolean {
  return "DedicatedWorkerGlobalScope" in globalThis;
}

/** Makes this thread a worker: it forwards as the main thread commands. */
export function serveAsWorker(): void {
  const scope = globalThis as unknown as WorkerScope;
  // One of them ends neither the main thread nor a worker with its connections.
  takeUncaughtErrors((error) => scope.postMessage([UNCAUGHT, error]));
  serveScope(scope, { clock: systemClock, network: systemNetwork, random: Math.random });
}

/** Serves the main thread over a scope, with a {@linkcode WorkerFamily} for each topic. */
export function serveScope(scope: WorkerScope, edges: WorkerEdges): void {
  const families = new Map<string, WorkerFamily>();
  scope.onmessage = ({ data: [topic, message] }) => {
    const post = (posted: WorkerMessage) => scope.postMessage([topic, posted]);
    void families.getOrInsertComputed(topic, () => new WorkerFamily(edges, post))
      .receive(message as MainMessage);
  };
  scope.postMessage(READY);
}
