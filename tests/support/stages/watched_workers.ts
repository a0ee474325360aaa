/**
 * Real workers, of which a test sees the messages, and which it can end.
 *
 * @module
 */
import { UNCAUGHT, type WorkerThread } from "../../../lib/os/worker_pool.ts";
import { spawnWorker } from "./userspace_backend.ts";

/** A message as workers and the main thread post it. */
type Posted = readonly [topic: string, message: readonly [type: string, ...unknown[]]];

interface WatchedWorker {
  readonly worker: Worker;
  readonly thread: WorkerThread;
  /** Kinds of the questions that it asked. */
  readonly asked: string[];
  /** Operations that it was told to carry out. */
  readonly commanded: string[];
}

function operationsOf(question: unknown): readonly string[] {
  const { commands = [] } = question as { commands?: readonly { readonly op: string }[] };
  return commands.map(({ op }) => op);
}

/** Starts workers of kube-relay in place of `spawnWorker`. */
export class WatchedWorkers {
  readonly #byName = new Map<string, WatchedWorker>();
  /** How often workers were started. */
  started = 0;
  /** Delivers the messages that are kept back, by the kind of the messages. */
  readonly #held = new Map<string, (() => void)[]>();

  readonly spawn = (name: string): WorkerThread => {
    this.started++;
    const worker = spawnWorker(name);
    const watched: WatchedWorker = {
      worker,
      asked: [],
      commanded: [],
      thread: {
        onmessage: null,
        onerror: null,
        postMessage(message) {
          const [, [type, , content]] = message as Posted;
          if (type === "ask") watched.commanded.push(...operationsOf(content));
          worker.postMessage(message);
        },
        terminate: () => worker.terminate(),
      },
    };
    worker.onmessage = (event) => {
      const deliver = () => void watched.thread.onmessage?.(event);
      if (!Array.isArray(event.data) || event.data[0] === UNCAUGHT) return deliver();
      const [, message] = event.data as unknown as Posted;
      const { kind = "" } = { ...message.at(-1) as { kind?: string } };
      if (message[0] === "ask") watched.asked.push(kind);
      const held = this.#held.get(kind);
      if (held) held.push(deliver);
      else deliver();
    };
    worker.onerror = (event) => watched.thread.onerror?.(event);
    this.#byName.set(name, watched);
    return watched.thread;
  };

  /** Keeps back what workers post of a kind, until the result is called. */
  hold(kind: string): () => void {
    this.#held.set(kind, []);
    return () => {
      const held = this.#held.get(kind) ?? [];
      this.#held.delete(kind);
      for (const deliver of held) deliver();
    };
  }

  /** Messages of a kind that are kept back. */
  held(kind: string): number {
    return this.#held.get(kind)?.length ?? 0;
  }

  /** How often the worker asked the main thread such a question. */
  asked(index: number, kind: string): number {
    return this.#at(index).asked.filter((each) => each === kind).length;
  }

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
