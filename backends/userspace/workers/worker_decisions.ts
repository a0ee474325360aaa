import type { Decider } from "./decider.ts";
import type { WorkerSide } from "./worker_protocol.ts";
import type { WorkerForwarder } from "./worker_tables.ts";

/** What workers tell of their connections. */
export type CountedNotice = Extract<
  WorkerSide["notice"],
  { readonly kind: "enter" | "leave" | "release" }
>;

/** Answers the questions of workers about their connections. */
export class WorkerDecisions {
  readonly #forwarders: ReadonlyMap<number, WorkerForwarder>;
  /** Removed ones that may have connections which a limit of their Service still counts. */
  readonly #removed = new Map<number, WorkerForwarder>();

  constructor(forwarders: ReadonlyMap<number, WorkerForwarder>) {
    this.#forwarders = forwarders;
  }

  /** The connections of a worker have ended with it. */
  forget(worker: number): void {
    for (const forwarders of [this.#forwarders, this.#removed]) {
      for (const forwarder of forwarders.values()) forwarder.forget(worker);
    }
  }

  /** A ServicePort was removed; its connections may finish. */
  remove(forwarder: WorkerForwarder): void {
    forwarder.decider?.remove();
    if (forwarder.decider?.isIdle === false) this.#removed.set(forwarder.number, forwarder);
  }

  answer(worker: number, question: WorkerSide["question"]): unknown {
    const decider = this.#forwarders.get(question.forwarder)?.decider;
    if (question.kind === "admit") return decider?.admit(worker, question.client);
    const { client, exclude, verdict } = question;
    return decider?.pick(worker, { client, verdict, ...(exclude && { exclude }) });
  }

  count(worker: number, notice: CountedNotice): void {
    const { forwarder: number } = notice;
    const decider = (this.#forwarders.get(number) ?? this.#removed.get(number))?.decider;
    this.#countFor(decider, worker, notice);
    if (decider?.isIdle) this.#removed.delete(number);
  }

  #countFor(decider: Decider | undefined, worker: number, notice: CountedNotice): void {
    switch (notice.kind) {
      case "release":
        return decider?.release(worker, notice.endpoint);
      case "enter":
        return decider?.enter(worker);
      case "leave":
        return decider?.leave(worker, notice.client);
    }
  }
}
