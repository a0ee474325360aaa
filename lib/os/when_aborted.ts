/**
 * Waiting for a signal.
 *
 * @module
 */

/**
 * Resolves when the signal is aborted, at once if it is already: a listener that is added then is
 * never called, and who waits for it would wait for ever. For signals that live as long as whoever
 * waits: the listener stays.
 */
export function whenAborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) =>
    signal.addEventListener("abort", () => resolve(), { once: true })
  );
}
