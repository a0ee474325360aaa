import type { Clock } from "../../../lib/os/clock.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";

/** A repaired tool is used again without a restart of kube-relay. */
const FORGET_MS = 60_000;

/** Remembers which programs ran into a time-out when they were started last. */
export class HungTools {
  readonly #commands: CommandRunner;
  readonly #clock: Pick<Clock, "now">;
  /** The time at which each program was given up. */
  readonly #hung = new Map<string, number>();

  constructor(
    { commands, clock }: { readonly commands: CommandRunner; readonly clock: Pick<Clock, "now"> },
  ) {
    this.#commands = commands;
    this.#clock = clock;
  }

  /**
   * Runs every command. For trials, where a later command may have to clean up after an earlier
   * one.
   */
  get noting(): CommandRunner {
    return { run: (...command) => this.#run(...command) };
  }

  /** As {@linkcode noting}, but skips a program that hung within the last minute. */
  get avoiding(): CommandRunner {
    return {
      run: (program, args, options) => {
        const since = this.#hung.get(program);
        if (since === undefined || this.#clock.now() - since >= FORGET_MS) {
          return this.#run(program, args, options);
        }
        const message = `Cannot run '${program}': it hung a moment ago`;
        return Promise.reject(new CommandError(program, args, "failed", message));
      },
    };
  }

  async #run(...[program, ...rest]: Parameters<CommandRunner["run"]>) {
    try {
      const result = await this.#commands.run(program, ...rest);
      this.#hung.delete(program);
      return result;
    } catch (error) {
      if (error instanceof CommandError && error.kind === "timeout") {
        this.#hung.set(program, this.#clock.now());
      }
      throw error;
    }
  }
}
