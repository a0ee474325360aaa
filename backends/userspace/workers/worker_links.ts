import { messageOf } from "../../../lib/log/message_of.ts";
import type { JudgeUpdate } from "../../../lib/policy/judge_update.ts";
import type { WorkerPool } from "../../../lib/os/worker_pool.ts";
import type { WorkerLink } from "./worker_link.ts";
import type { Answers, Command, MainNotice, Question } from "./worker_protocol.ts";

/** The connections to all workers that run, for one IP family. */
export class WorkerLinks {
  readonly #pool: WorkerPool;
  readonly #links = new Map<number, WorkerLink>();

  constructor(pool: WorkerPool) {
    this.#pool = pool;
  }

  get indexes(): readonly number[] {
    return [...this.#links.keys()];
  }

  /** Whether commands are queued or being carried out. */
  get areBusy(): boolean {
    return this.#links.values().some(({ isBusy }) => isBusy);
  }

  get(index: number): WorkerLink | undefined {
    return this.#links.get(index);
  }

  add(index: number, link: WorkerLink): void {
    this.#links.set(index, link);
  }

  /** A worker has ended. */
  delete(index: number, reason: Error): void {
    this.#links.get(index)?.close(reason);
    this.#links.delete(index);
  }

  /** Queues commands for one worker, or for all. */
  queue(index: number | undefined, ...commands: readonly Command[]): void {
    if (index !== undefined) this.#links.get(index)?.queue(commands);
    else for (const link of this.#links.values()) link.queue(commands);
  }

  /** Resolves when the workers have carried out what is queued. Never rejects. */
  async flush(): Promise<void> {
    await Promise.all(
      [...this.#links].map(([index, link]) =>
        link.flush().catch((error) => this.fail(index, error))
      ),
    );
  }

  /** Ends a worker that cannot do what it has to. One that has ended is replaced already. */
  fail(index: number, error: unknown): void {
    if (this.#links.has(index) && this.#pool.isRunning(index)) {
      this.#pool.end(index, messageOf(error));
    }
  }

  /** Resolves when the workers follow an update. Never rejects: one that fails is replaced. */
  async follow(update: JudgeUpdate): Promise<void> {
    const sent = await Promise.all(this.#links.values().map((link) => link.follow(update)));
    await Promise.allSettled(sent.map(({ done }) => done));
  }

  /** Tells every worker, or every other one. */
  tell(notice: MainNotice, { except }: { readonly except?: number } = {}): void {
    for (const [index, link] of this.#links) if (index !== except) link.tell(notice);
  }

  /** Resolves to the answers of the workers that answer. */
  async ask<Kind extends Question["kind"]>(
    question: Extract<Question, { readonly kind: Kind }>,
    options: { readonly withinMs?: number } = {},
  ): Promise<readonly (readonly [index: number, answer: Answers[Kind]])[]> {
    const asked = [...this.#links].map(async ([index, link]) =>
      [index, await link.ask<Kind>(question, options)] as const
    );
    const settled = await Promise.allSettled(asked);
    return settled.flatMap((each) => each.status === "fulfilled" ? [each.value] : []);
  }
}
