import type { Clock } from "../../../lib/os/clock.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import { type JudgeUpdate, piecesOf } from "../../../lib/policy/connection_judge.ts";
import { endpointListsOf } from "../endpoint_loops.ts";
import type { Command, RefusedSocket } from "../forwarders.ts";
import type {
  Answers,
  MainMessage,
  Question,
  WorkerMessage,
  WorkerNotice,
  WorkerReport,
} from "./worker_protocol.ts";

/** Commands in one message, each endpoint counted as one: copying them takes a few milliseconds. */
const MOST_COMMANDS = 512;
/** A worker that leaves a question open and is silent for so long has hung. It reports every second. */
const SILENT_MS = 30_000;

/** The connection of the main thread to a worker that runs. */
export class WorkerLink {
  /** The counters of the worker, as of its last report. */
  counters: WorkerReport["counters"] | undefined;
  readonly #clock: Clock;
  readonly #post: (message: MainMessage) => void;
  readonly #hear: (notice: WorkerNotice) => void;
  readonly #onRefused: (refused: readonly RefusedSocket[]) => void;
  /** Questions without an answer. */
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  #lastId = 0;
  #closed: Error | undefined;
  readonly #commands: Command[] = [];
  /** When the worker posted something for the last time. */
  #heardAt: number;
  #wasSilent = false;
  /** Commands that are being carried out. */
  readonly #applying = new Set<Promise<void>>();
  readonly #following = new OneAtATime();

  constructor(
    clock: Clock,
    post: (message: MainMessage) => void,
    hear: (notice: WorkerNotice) => void,
    onRefused: (refused: readonly RefusedSocket[]) => void,
  ) {
    this.#clock = clock;
    this.#post = post;
    this.#hear = hear;
    this.#onRefused = onRefused;
    this.#heardAt = clock.now();
  }

  /** Whether commands are queued or being carried out. */
  get isBusy(): boolean {
    return this.#commands.length + this.#applying.size > 0;
  }

  /** Queues commands; they are sent with the next {@linkcode flush}. */
  queue(commands: Iterable<Command>): void {
    // Not spread: more than some 60,000 arguments overflow the stack.
    for (const command of commands) this.#commands.push(command);
  }

  /** Resolves when all commands so far were carried out. Rejects if the worker fails. */
  async flush(): Promise<void> {
    while (this.#commands.length > 0) {
      const commands = this.#commands.splice(0, countOfMessage(this.#commands));
      const applying = this.ask({ kind: "apply", commands }).then(this.#onRefused);
      this.#applying.add(applying);
      applying.finally(() => this.#applying.delete(applying)).catch(() => {});
      if (this.#commands.length > 0) await this.#clock.yieldToEventLoop();
    }
    await Promise.all(this.#applying);
  }

  /**
   * Sends an update after those before it. It must stay as it is until this resolves, and the worker
   * follows it when what is returned does.
   */
  follow(update: JudgeUpdate): Promise<{ readonly done: Promise<unknown> }> {
    return this.#following.run(async () => {
      const answers: Promise<void>[] = [];
      for (const piece of piecesOf(update)) {
        if (answers.length > 0) await this.#clock.yieldToEventLoop();
        const answer = this.ask({ kind: "follow", update: piece });
        answer.catch(() => {});
        answers.push(answer);
      }
      return { done: Promise.all(answers) };
    });
  }

  /** Resolves to the answer. Rejects if the worker has none, or ends. */
  async ask<Kind extends Question["kind"]>(
    question: Extract<Question, { readonly kind: Kind }>,
  ): Promise<Answers[Kind]> {
    if (this.#closed) throw this.#closed;
    const id = ++this.#lastId;
    const waiting = Promise.withResolvers<unknown>();
    this.#waiting.set(id, waiting);
    this.post(["ask", id, question]);
    return await waiting.promise as Answers[Kind];
  }

  post(message: MainMessage): void {
    if (!this.#closed) this.#post(message);
  }

  receive(message: WorkerMessage): void {
    if (this.#closed) return;
    this.#heardAt = this.#clock.now();
    if (message[0] === "tell") return this.#hear(message[1]);
    const [type, id, content] = message;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (type === "answer") waiting?.resolve(content);
    else waiting?.reject(new Error(content));
  }

  /**
   * Whether the worker was silent for too long; asked every few seconds. After a stall of this thread it
   * is asked before the answers are delivered that have come, so the second time counts.
   */
  hasHung(): boolean {
    const isSilent = this.#clock.now() - this.#heardAt >= SILENT_MS;
    const hasHung = isSilent && this.#wasSilent && this.#waiting.size > 0;
    this.#wasSilent = isSilent;
    return hasHung;
  }

  /** The worker has ended: what it was asked fails, and nothing is posted any more. */
  close(reason: Error): void {
    this.#closed = reason;
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }
}

/** Returns how many commands are sent together: one at least. */
function countOfMessage(commands: readonly Command[]): number {
  let weight = 0;
  const count = commands.findIndex((command) => {
    const { plan = undefined } = command.op === "forward" ? command : {};
    weight += 1 + (plan ? endpointListsOf(plan).flat().length : 0);
    return weight > MOST_COMMANDS;
  });
  return count < 0 ? commands.length : Math.max(1, count);
}
