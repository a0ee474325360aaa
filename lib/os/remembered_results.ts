import type { Clock } from "./clock.ts";
import type { CommandOptions, CommandResult, CommandRunner } from "./command_runner.ts";

/** A start takes less, also on a busy machine. */
const RECENT_MS = 10_000;

/**
 * Runs commands, but returns the last result of one that {@linkcode CommandOptions.mayBeRecent}. A
 * start asks for the same facts of the machine several times: for the choice of the mode, for each
 * IP family and for each controller.
 */
export class RememberedResults implements CommandRunner {
  /** The commands that were started, and when. */
  readonly #started = new Map<
    string,
    { readonly at: number; readonly result: Promise<CommandResult> }
  >();

  constructor(
    private readonly commands: CommandRunner,
    private readonly clock: Pick<Clock, "now">,
  ) {}

  async run(
    program: string,
    args: readonly string[],
    { mayBeRecent = false, ...options }: CommandOptions = {},
  ): Promise<CommandResult> {
    if (!mayBeRecent) return await this.commands.run(program, args, options);
    const now = this.clock.now();
    for (const [key, { at }] of this.#started) {
      if (now - at >= RECENT_MS) this.#started.delete(key);
    }
    const key = JSON.stringify([program, args, options.stdin]);
    for (let known = this.#started.get(key); known !== undefined; known = this.#started.get(key)) {
      const recent = await known.result.catch(() => undefined);
      if (recent !== undefined) return recent;
      // The failure may be that of the other caller, who gave up.
      if (this.#started.get(key) === known) this.#started.delete(key);
    }
    const result = this.commands.run(program, args, options);
    this.#started.set(key, { at: now, result });
    return await result;
  }
}
