/**
 * The program of a worker thread that dies when it is told to, as by an error in Deno itself. It
 * records from which ports it makes connections.
 *
 * @module
 */
import { serveAsWorker } from "../../backends/userspace/workers/worker_thread.ts";
import { systemNetwork } from "../../lib/os/network.ts";

interface Birth {
  /** The number of the worker that has each port; shared by all workers. */
  readonly owners: Uint8Array;
  readonly number: number;
}

class Death extends Error {
  override message = "killed by the soak";
}

let birth: Birth | undefined;

const { connectTcp } = systemNetwork;
Object.assign(systemNetwork, {
  connectTcp: async (...args: Parameters<typeof connectTcp>) => {
    const connection = await connectTcp(...args);
    if (birth) birth.owners[connection.localAddr.port] = birth.number;
    return connection;
  },
});

// Both listeners are called before those of the worker.
globalThis.addEventListener("message", (event) => {
  const { data } = event as unknown as MessageEvent;
  if (Array.isArray(data)) return;
  event.stopImmediatePropagation();
  if (data === "die") throw new Death();
  birth = data;
});
globalThis.addEventListener("error", (event) => {
  if (event.error instanceof Death) event.stopImmediatePropagation();
});

serveAsWorker();
