import type { Clock } from "../os/clock.ts";

/** Sends a request to an API server, and aborts it if it takes longer than `ms`. */
export async function answeredInTime<T>(
  { clock, ms, signal }: {
    readonly clock: Clock;
    readonly ms: number;
    readonly signal: AbortSignal;
  },
  send: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  using call = new LinkedAbort(signal);
  const late = () => call.abort(new Error("the API server did not answer in time"));
  const timer = clock.setTimer(ms, late);
  try {
    return await send(call.signal);
  } finally {
    timer.cancel();
  }
}

/** An AbortController that also follows another signal until it is disposed. */
export class LinkedAbort implements Disposable {
  readonly #controller = new AbortController();
  readonly #parent: AbortSignal;
  readonly #follow = () => this.#controller.abort(this.#parent.reason);

  // Not `AbortSignal.any()`: its results would stay referenced by a signal that lives as long as
  // the process.
  constructor(parent: AbortSignal) {
    this.#parent = parent;
    if (parent.aborted) this.#follow();
    else parent.addEventListener("abort", this.#follow, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  [Symbol.dispose](): void {
    this.#parent.removeEventListener("abort", this.#follow);
  }
}
