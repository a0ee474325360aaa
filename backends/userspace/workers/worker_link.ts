import type { Clock, Timer } from "../../../lib/os/clock.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import { type JudgeUpdate, piecesOf } from "../../../lib/policy/judge_update.ts";
import { endpointListsOf } from "../endpoint_loops.ts";
import type {
  Answers,
  Command,
  MainMessage,
  MainNotice,
  Question,
  RefusedSocket,
  WorkerMessage,
  WorkerNotice,
} from "./worker_protocol.ts";

interface WorkerLinkContext {
  readonly clock: Clock;
  readonly post: (message: MainMessage) => void;
  hear(notice: WorkerNotice): void;
  onRefused(refused: readonly RefusedSocket[]): void;
  /** The worker does not answer. */
  onHang(): void;
}

interface Waiting {
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Commands in one message, each endpoint counted as one: copying them takes a few milliseconds. */
const MOST_COMMANDS = 512;
/** A worker that leaves a question open and is silent for so long has hung. It reports every second. */
const SILENT_MS = 30_000;
/** After a stall of this thread, overdue timers fire before answers that have come are delivered. */
const STALL_MS = 2000;

/** The connection of the main thread to a worker that runs. */
export class WorkerLink {
  readonly #context: WorkerLinkContext;
  /** Questions without an answer. */
  readonly #waiting = new Map<number, Waiting>();
  #lastId = 0;
  #closed: Error | undefined;
  readonly #commands: Command[] = [];
  /** When the worker posted something for the last time. */
  #heardAt = 0;
  /** Commands that are being carried out. */
  readonly #applying = new Set<Promise<void>>();
  readonly #following = new OneAtATime();

  constructor(context: WorkerLinkContext) {
    this.#context = context;
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
      const applying = this.ask({ kind: "apply", commands }).then(this.#context.onRefused);
      this.#applying.add(applying);
      applying.finally(() => this.#applying.delete(applying)).catch(() => {});
      if (this.#commands.length > 0) await this.#context.clock.yieldToEventLoop();
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
        if (answers.length > 0) await this.#context.clock.yieldToEventLoop();
        const answer = this.ask({ kind: "follow", update: piece });
        answer.catch(() => {});
        answers.push(answer);
      }
      return { done: Promise.all(answers) };
    });
  }

  /**
   * Resolves to the answer. Rejects if the worker has none, or ends. A worker that is silent for too
   * long is given up.
   */
  async ask<Kind extends Question["kind"]>(
    question: Extract<Question, { readonly kind: Kind }>,
    withinMs = SILENT_MS,
  ): Promise<Answers[Kind]> {
    if (this.#closed) throw this.#closed;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const id = ++this.#lastId;
    this.#waiting.set(id, { resolve, reject });
    const timer = this.#watch(withinMs);
    try {
      this.#context.post(["ask", id, question]);
      return await promise as Answers[Kind];
    } finally {
      timer.cancel();
    }
  }

  tell(notice: MainNotice): void {
    if (!this.#closed) this.#context.post(["tell", notice]);
  }

  /** Reports a hang when nothing is heard for so long from now on. */
  #watch(silentMs: number): Timer {
    const { clock, onHang } = this.#context;
    const askedAt = clock.now();
    const check = () => {
      const left = Math.max(askedAt, this.#heardAt) + silentMs - clock.now();
      if (left <= 0) onHang();
      else timer = clock.setTimer(left, look);
    };
    const look = () => void (timer = clock.setTimer(STALL_MS, check));
    let timer = clock.setTimer(silentMs, look);
    return { cancel: () => timer.cancel() };
  }

  receive(message: WorkerMessage): void {
    if (this.#closed) return;
    this.#heardAt = this.#context.clock.now();
    if (message[0] === "tell") return this.#context.hear(message[1]);
    const [type, id, content] = message;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (type === "answer") waiting?.resolve(content);
    else waiting?.reject(new Error(content));
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
