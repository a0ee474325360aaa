/**
 * SIGINT and SIGTERM: the one file that listens for them.
 *
 * @module
 */

/** The signals, and what a shell reports of a process that one of them ended. */
const EXIT_CODES = { SIGINT: 130, SIGTERM: 143 } as const;

/** Why the signal of an {@linkcode TerminationSource} was aborted. */
export class TerminationRequest extends Error {
  override name = "TerminationRequest";
  /** As a shell reports it. */
  readonly exitCode: number;

  constructor(signal: keyof typeof EXIT_CODES) {
    super(`ended by ${signal}`);
    this.exitCode = EXIT_CODES[signal];
  }
}

/**
 * From the call on, the first SIGINT or SIGTERM aborts the signal that is returned, with a
 * {@linkcode TerminationRequest}, and the second one exits. Until then both end the process at once.
 */
export type TerminationSource = () => AbortSignal;

/**
 * For the program, once. It listens for no signal before it has to: without a listener the kernel ends
 * the process whatever it computes, with one the signal waits for a turn of the event loop.
 */
export function createTerminationSource(): TerminationSource {
  let controller: AbortController | undefined;
  const listen = () => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      Deno.addSignalListener(signal, () => {
        if (controller === undefined || controller.signal.aborted) Deno.exit(EXIT_CODES[signal]);
        controller.abort(new TerminationRequest(signal));
      });
    }
  };
  // The kernel drops what the first process of a container does not listen for.
  const isFirst = Deno.pid === 1;
  if (isFirst) listen();
  return () => {
    controller = new AbortController();
    if (!isFirst) listen();
    return controller.signal;
  };
}
