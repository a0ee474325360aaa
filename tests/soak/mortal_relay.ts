/**
 * A program: kube-relay whose workers can be killed. Its first argument is the path of a Unix socket;
 * all others are kube-relay's. A connection to the socket sends the index of a worker as one byte.
 * The worker then ends by an error that nothing catches. The answer is one byte for each port: the
 * number, from 1, of the worker that last made a connection to an endpoint from it.
 *
 * @module
 */
import { runCommandLine } from "../../lib/tools/cli/command_line.ts";
import { createTerminationSource } from "../../lib/os/termination_signals.ts";
import type { WorkerThread } from "../../lib/os/worker_pool.ts";
import { createDependencies } from "../../main.ts";
import { writeFully } from "../support/drivers/tcp_peers.ts";

const PORTS = 65_536;
const PROGRAM = new URL("mortal_worker.ts", import.meta.url);

interface MortalWorker {
  readonly worker: Worker;
  /** Resolves when kube-relay gets to know of the end. */
  readonly over: Promise<void>;
}

const owners = new Uint8Array(new SharedArrayBuffer(PORTS));
const workers = new Map<number, MortalWorker>();

function spawnMortal(name: string): WorkerThread {
  const number = Number(/\d+$/.exec(name)![0]);
  const worker = new Worker(PROGRAM, { type: "module", name });
  worker.postMessage({ owners, number });
  const { promise: over, resolve } = Promise.withResolvers<void>();
  worker.addEventListener("error", () => resolve());
  workers.set(number, { worker, over });
  return worker;
}

async function kill(number: number): Promise<Uint8Array> {
  const atTheEnd = owners.slice();
  const { worker, over } = workers.get(number)!;
  worker.postMessage("die");
  await over;
  return atTheEnd;
}

async function serveKills(path: string): Promise<void> {
  for await (const connection of Deno.listen({ transport: "unix", path })) {
    const index = new Uint8Array(1);
    await connection.read(index);
    await writeFully(connection, await kill(index[0]! + 1));
    connection.close();
  }
}

if (import.meta.main) {
  const [path = "", ...args] = Deno.args;
  void serveKills(path);
  const dependencies = { ...createDependencies(), spawnWorker: spawnMortal };
  Deno.exit(await runCommandLine(dependencies, args, createTerminationSource()));
}
