import type { Clock } from "./clock.ts";

/** Wakes a task that waits for work. A call while it works is not lost. */
export class WakeUp {
  #called = Promise.withResolvers<void>();

  call(): void {
    this.#called.resolve();
  }

  /** Waits for a call since the last wait, for the signal, or for the end of a time. Never rejects. */
  async wait(
    signal: AbortSignal,
    limit?: { readonly clock: Pick<Clock, "setTimer">; readonly ms: number },
  ): Promise<void> {
    const call = () => this.call();
    signal.addEventListener("abort", call, { once: true });
    if (signal.aborted) call();
    const timer = limit?.clock.setTimer(limit.ms, call);
    await this.#called.promise;
    timer?.cancel();
    signal.removeEventListener("abort", call);
    this.#called = Promise.withResolvers();
  }
}

const [FIRST_RETRY_MS, LONGEST_RETRY_MS] = [1_000, 300_000];

/**
 * Works after each call, one run at a time, until the signal is aborted. `work` must not reject, and
 * returns whether it succeeded: if not, it is repeated, ever more seldom.
 */
export async function workOnCall(
  clock: Clock,
  wakeUp: WakeUp,
  signal: AbortSignal,
  work: () => Promise<boolean>,
): Promise<void> {
  let failures = 0;
  for (;;) {
    await wakeUp.wait(signal);
    if (signal.aborted) return;
    if (await work()) {
      failures = 0;
      continue;
    }
    const retryMs = Math.min(FIRST_RETRY_MS * 2 ** failures++, LONGEST_RETRY_MS);
    await clock.sleep(retryMs, signal).catch(() => {});
    wakeUp.call();
  }
}
