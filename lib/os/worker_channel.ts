/**
 * Questions and answers between two threads, in the order in which they were posted.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";

/** What is posted: a question, its answer, the reason why there is none, or a notice. */
export type ChannelMessage =
  | readonly ["ask", number, unknown]
  | readonly ["answer", number, unknown]
  | readonly ["failure", number, string]
  | readonly ["tell", unknown];

/** The questions and notices of one thread. */
export interface ChannelSide {
  /** The type of the answer to each question, by its `kind`. */
  readonly answers: object;
  readonly question: { readonly kind: string };
  readonly notice: { readonly kind: string };
}

/** Handles what the other thread posts. */
export interface ChannelHandler<Other extends ChannelSide> {
  /** Returns or resolves to the answer. What it throws is the reason why there is none. */
  answer(question: Other["question"]): unknown;
  hear(notice: Other["notice"]): void;
}

interface Waiting {
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** One end of a channel. Messages are copied by the structured clone algorithm. */
export class WorkerChannel<Own extends ChannelSide, Other extends ChannelSide> {
  readonly #post: (message: ChannelMessage) => void;
  readonly #handler: ChannelHandler<Other>;
  readonly #waiting = new Map<number, Waiting>();
  #lastId = 0;
  #closed: Error | undefined;

  constructor(post: (message: ChannelMessage) => void, handler: ChannelHandler<Other>) {
    this.#post = post;
    this.#handler = handler;
  }

  /** Resolves to the answer. Rejects if the other thread has none, or ends. */
  ask<Kind extends Own["question"]["kind"] & keyof Own["answers"]>(
    question: Extract<Own["question"], { readonly kind: Kind }>,
  ): Promise<Own["answers"][Kind]> {
    if (this.#closed) return Promise.reject(this.#closed);
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: resolve as Waiting["resolve"], reject });
      this.#post(["ask", id, question]);
    });
  }

  tell(notice: Own["notice"]): void {
    if (!this.#closed) this.#post(["tell", notice]);
  }

  /** Handles a message of the other thread. */
  receive(message: ChannelMessage): void {
    if (this.#closed) return;
    if (message[0] === "tell") return this.#handler.hear(message[1] as Other["notice"]);
    const [type, id, content] = message;
    if (type === "ask") return this.#answer(id, content as Other["question"]);
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (type === "answer") waiting?.resolve(content);
    else waiting?.reject(new Error(content as string));
  }

  /** The other thread has ended: what it was asked fails, and nothing is posted any more. */
  close(reason: Error): void {
    this.#closed = reason;
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }

  #answer(id: number, question: Other["question"]): void {
    const fail = (error: unknown) => this.#reply(["failure", id, messageOf(error)]);
    try {
      const answer = this.#handler.answer(question);
      if (!(answer instanceof Promise)) this.#reply(["answer", id, answer]);
      else answer.then((value) => this.#reply(["answer", id, value])).catch(fail);
    } catch (error) {
      fail(error);
    }
  }

  #reply(message: ChannelMessage): void {
    if (!this.#closed) this.#post(message);
  }
}
