/**
 * The only file that starts a process.
 *
 * @module
 */

/** How a command is run. */
export interface CommandOptions {
  /** Text for its standard input; pieces are written as they come. */
  readonly stdin?: string | Iterable<string>;
  /** Ends the command after so long. @default {30000} */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** What a command left. */
export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the tools of the machine. Arguments are a list; no shell is ever involved. */
export interface CommandRunner {
  /**
   * Runs a command to its end, with `LC_ALL=C`. Any exit code is a result.
   * Throws a CommandError when it could not be run or did not end in time.
   */
  run(program: string, args: readonly string[], options?: CommandOptions): Promise<CommandResult>;
}

/** Why a command could not be run to its end. */
export class CommandError extends Error {
  override name = "CommandError";
  constructor(
    readonly program: string,
    readonly args: readonly string[],
    readonly kind: "not-found" | "not-permitted" | "timeout" | "aborted" | "failed",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
