/**
 * Resolves when the signal is aborted, at once if it already is: a listener that is added later is
 * never called. For signals that live as long as the waiting code, because the listener stays.
 */
export function whenAborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) =>
    signal.addEventListener("abort", () => resolve(), { once: true })
  );
}
