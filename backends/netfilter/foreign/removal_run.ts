/**
 * Runs the steps of a removal, or only records them, and keeps the report.
 *
 * @module
 */
import { messageOf } from "../../../lib/log/message_of.ts";
import { removeFile } from "../../../lib/os/write_file.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import { reasonOfExit, saysNotPermitted } from "../probe/try_tool.ts";

/** One command that removes something. */
export interface RemovalStep {
  readonly command: readonly [string, ...string[]];
  /** The input; called for each use. */
  readonly input?: () => Iterable<string>;
  /** The removed objects for the report, one line each. */
  readonly removes: readonly string[];
}

interface RemovalOptions {
  readonly dryRun: boolean;
  readonly signal?: AbortSignal;
}

/** Time limit. A table of 20,000 chains takes seconds, plus the wait for the lock. */
const STEP_TIMEOUT_MS = 120_000;

/** One removal, from its first step to the report. */
export class RemovalRun {
  readonly #commands: CommandRunner;
  readonly #options: RemovalOptions;
  readonly #removed: string[] = [];
  readonly #failed: string[] = [];
  readonly #kept: string[] = [];
  readonly #script: string[] = [];

  constructor(
    { commands }: { readonly commands: CommandRunner },
    options: RemovalOptions,
  ) {
    this.#commands = commands;
    this.#options = options;
  }

  get dryRun(): boolean {
    return this.#options.dryRun;
  }

  get signal(): { readonly signal?: AbortSignal } {
    return this.#options.signal ? { signal: this.#options.signal } : {};
  }

  /** Something that stays, and why. */
  keep(what: string): void {
    if (!this.#kept.includes(what)) this.#kept.push(what);
  }

  /** Records an object that could not be read. A plain user cannot read it, but cannot have made it either. */
  unseen(what: string, reason: string): void {
    if (saysNotPermitted(reason)) this.keep(`${what}: not checked, which needs root: ${reason}`);
    else this.fail(`${what}: ${reason}`);
  }

  /** Records an object that could not be removed, and the reason. */
  fail(what: string): void {
    this.#failed.push(what);
  }

  /** Reports an object that a step removed. */
  remove(what: string): void {
    this.#removed.push(what);
  }

  /** Carries a step out. Returns why it failed; `undefined` when it did not. */
  async try({ command, input, removes }: RemovalStep): Promise<string | undefined> {
    const [program, ...args] = command;
    if (this.dryRun) {
      this.#script.push(toScript(command, input?.()));
      for (const what of removes) this.#removed.push(what);
      return undefined;
    }
    const options = { timeoutMs: STEP_TIMEOUT_MS, ...this.signal };
    try {
      const result = await this.#commands.run(program, args, {
        ...options,
        ...(input && { stdin: input() }),
      });
      if (result.code !== 0) return reasonOfExit(program, result);
    } catch (error) {
      if (!(error instanceof CommandError) || error.kind === "aborted") throw error;
      return error.message;
    }
    for (const what of removes) this.#removed.push(what);
    return undefined;
  }

  /** As {@linkcode try}; a failure is reported with `what`. */
  async do(what: string, step: RemovalStep): Promise<void> {
    const reason = await this.try(step);
    if (reason !== undefined) this.#failed.push(`${what}: ${reason}`);
  }

  /** Removes a file. */
  async removeFile(path: string): Promise<void> {
    const what = `file ${path}`;
    if (this.dryRun) return void await this.try({ command: ["rm", path], removes: [what] });
    try {
      await removeFile(path);
      this.remove(what);
    } catch (error) {
      this.fail(`${what}: ${messageOf(error)}`);
    }
  }

  report(): CleanupReport {
    return {
      removed: this.#removed,
      failed: this.#failed,
      ...(this.#kept.length > 0 && { kept: this.#kept }),
      ...(this.dryRun && { commands: this.#script }),
    };
  }
}

/** Formats a command for a shell, so that the user can run the output of a dry run. */
function toScript(command: readonly string[], input: Iterable<string> | undefined): string {
  const line = command.join(" ");
  if (input === undefined) return `${line}\n`;
  // Quoted: the shell leaves `$` and backslashes of rules alone.
  return `${line} <<'EOF'\n${[...input].join("")}EOF\n`;
}
