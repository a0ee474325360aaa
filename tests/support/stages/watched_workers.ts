/** Real workers, of which a test sees what they are told to do, and which it can end. */
import { encodeFrame, FrameReader } from "../../../lib/net/message_frames.ts";
import type { WorkerThread } from "../../../lib/os/worker_pool.ts";
import { spawnWorker } from "./userspace_backend.ts";

/** A message as the main thread posts it. */
type Posted = readonly [topic: string, message: readonly [type: string, ...unknown[]]];

interface WatchedWorker {
  readonly worker: Worker;
  readonly thread: WorkerThread;
  /** Operations that it was told to carry out. */
  readonly commanded: string[];
}

function operationsOf(question: unknown): readonly string[] {
  const { commands = [] } = question as { commands?: readonly { readonly op: string }[] };
  return commands.map(({ op }) => op);
}

/** A message as it arrives after it was sent as a frame. */
function asFrame(message: unknown): unknown {
  let arrived: unknown;
  new FrameReader(Infinity, (message) => arrived = message).take(encodeFrame(message));
  return arrived;
}

/** Starts workers of kube-relay in place of `spawnWorker`. */
export class WatchedWorkers {
  /** Whether what is said after the start is sent as frames, as to data processes. */
  readonly #isFramed: boolean;
  readonly #byName = new Map<string, WatchedWorker>();
  /** How often workers were started. */
  started = 0;

  constructor({ isFramed = false } = {}) {
    this.#isFramed = isFramed;
  }

  readonly spawn = (name: string): WorkerThread => {
    this.started++;
    const worker = spawnWorker(name);
    const watched: WatchedWorker = {
      worker,
      commanded: [],
      thread: {
        onmessage: null,
        onerror: null,
        postMessage: (message) => {
          const [, [type, , content]] = message as Posted;
          if (type === "ask") watched.commanded.push(...operationsOf(content));
          worker.postMessage(this.#isFramed && type !== "start" ? asFrame(message) : message);
        },
        terminate: () => worker.terminate(),
      },
    };
    worker.onmessage = (event) =>
      watched.thread.onmessage?.(
        this.#isFramed ? new MessageEvent("message", { data: asFrame(event.data) }) : event,
      );
    worker.onerror = (event) => watched.thread.onerror?.(event);
    this.#byName.set(name, watched);
    return watched.thread;
  };

  /** How often the worker was told to do so. */
  commanded(index: number, op: string): number {
    return this.#at(index).commanded.filter((each) => each === op).length;
  }

  /** Ends a worker as an error that nothing handles would. */
  end(index: number): void {
    const { worker, thread } = this.#at(index);
    worker.terminate();
    thread.onerror?.(new ErrorEvent("error", { message: "ended by the test", cancelable: true }));
  }

  #at(index: number): WatchedWorker {
    const found = this.#byName.get(`kube-relay worker ${index + 1}`);
    if (!found) throw new Error(`Cannot find worker ${index + 1}`);
    return found;
  }
}
