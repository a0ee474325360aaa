/**
 * SIGINT, SIGTERM and SIGUSR2: the one file that listens for them.
 *
 * @module
 */

/** The signals, and the exit codes that a shell reports for them. */
const EXIT_CODES = { SIGINT: 130, SIGTERM: 143, SIGUSR2: 140 } as const;

/** The reason with which the signal of a {@linkcode TerminationSource} is aborted. */
export class TerminationRequest extends Error {
  override name = "TerminationRequest";
  /** As a shell reports it. */
  readonly exitCode: number;
  /** Whether another process of this program follows at once: what can live on without this one does. */
  readonly isRestart: boolean;

  constructor(signal: keyof typeof EXIT_CODES) {
    super(`ended by ${signal}`);
    this.isRestart = signal === "SIGUSR2";
    this.exitCode = EXIT_CODES[signal];
  }
}

/**
 * After the call, the first of these signals aborts the returned one with a {@linkcode
 * TerminationRequest}, and the second exits. Before the call, each ends the process at once.
 */
export type TerminationSource = () => AbortSignal;

/**
 * Creates the source for the program, once. It listens only after the call: without a listener the
 * kernel ends the process during any computation, with one the signal waits for a turn of the event
 * loop.
 */
export function createTerminationSource(): TerminationSource {
  let controller: AbortController | undefined;
  const listen = () => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGUSR2"] as const) {
      Deno.addSignalListener(signal, () => {
        if (controller === undefined || controller.signal.aborted) Deno.exit(EXIT_CODES[signal]);
        controller.abort(new TerminationRequest(signal));
      });
    }
  };
  // The kernel drops signals without a listener for the first process of a container.
  const isFirst = Deno.pid === 1;
  if (isFirst) listen();
  return () => {
    controller = new AbortController();
    if (!isFirst) listen();
    return controller.signal;
  };
}
