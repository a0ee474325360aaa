/**
 * Runs the steps of a removal, or only records them, and keeps the report.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/engine/data_plane.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import { removeFile } from "../../../lib/os/write_file.ts";
import { listSets } from "../ipset/ipset_runner.ts";
import { destroyLine } from "../ipset/ipset_text.ts";
import { deletionText, describeNftTable, type NftTable } from "../nft/nft_objects.ts";
import { listNftTables, NftError, NftRunner } from "../nft/nft_runner.ts";
import { reasonOfExit, saysNotPermitted, type Seen } from "../probe/try_tool.ts";
import { refusedLine } from "../tool_batch.ts";

/** One command that removes something. */
export interface RemovalStep {
  readonly command: readonly [string, ...string[]];
  /** The input; called for each use. */
  readonly input?: () => Iterable<string>;
  /** The removed objects for the report, one line each. */
  readonly removes: readonly string[];
}

/** Time limit. A table of 20,000 chains takes seconds, plus the wait for the lock. */
const STEP_TIMEOUT_MS = 120_000;

/** One removal, from its first step to the report. */
export class RemovalRun {
  readonly dryRun: boolean;
  /** The signal of the caller, as an option of other functions. */
  readonly signal: { readonly signal?: AbortSignal };
  readonly #commands: CommandRunner;
  readonly #removed: string[] = [];
  readonly #failed: string[] = [];
  readonly #kept: string[] = [];
  readonly #script: string[] = [];

  constructor(
    { commands }: { readonly commands: CommandRunner },
    { dryRun, signal }: { readonly dryRun: boolean; readonly signal?: AbortSignal },
  ) {
    this.#commands = commands;
    this.dryRun = dryRun;
    this.signal = signal ? { signal } : {};
  }

  /** Something that stays, and why. */
  keep(what: string): void {
    if (!this.#kept.includes(what)) this.#kept.push(what);
  }

  /** Records an object that could not be removed, and the reason. */
  fail(what: string): void {
    this.#failed.push(what);
  }

  /** Records an object that could not be read. A plain user cannot read it, but cannot have made it either. */
  unseen(what: string, reason: string): void {
    if (saysNotPermitted(reason)) this.keep(`${what}: not checked, which needs root: ${reason}`);
    else this.fail(`${what}: ${reason}`);
  }

  /** Returns what was read; `undefined` if there is none. What could not be read is recorded. */
  take<T>(what: string, seen: Seen<T>): T | undefined {
    if (seen.state === "refused") this.unseen(what, seen.reason);
    return seen.state === "seen" ? seen.value : undefined;
  }

  /** Carries a step out. Returns why it failed; `undefined` when it did not. */
  async try({ command, input, removes }: RemovalStep): Promise<string | undefined> {
    const [program, ...args] = command;
    if (this.dryRun) {
      // Formatted for a shell. Quoted: it leaves `$` and backslashes of rules alone.
      const text = input && ` <<'EOF'\n${[...input()].join("")}EOF`;
      this.#script.push(`${command.join(" ")}${text ?? ""}\n`);
    } else {
      try {
        const result = await this.#commands.run(program, args, {
          ...{ timeoutMs: STEP_TIMEOUT_MS, ...this.signal },
          ...(input && { stdin: input() }),
        });
        if (result.code !== 0) return reasonOfExit(program, result);
      } catch (error) {
        if (!(error instanceof CommandError) || error.kind === "aborted") throw error;
        return error.message;
      }
    }
    for (const what of removes) this.#removed.push(what);
    return undefined;
  }

  /** As {@linkcode try}; a failure is reported with `what`. */
  async do(what: string, step: RemovalStep): Promise<void> {
    const reason = await this.try(step);
    if (reason !== undefined) this.fail(`${what}: ${reason}`);
  }

  /** Removes a file. */
  async removeFile(path: string): Promise<void> {
    const what = `file ${path}`;
    if (this.dryRun) return void await this.try({ command: ["rm", path], removes: [what] });
    try {
      await removeFile(path);
      this.#removed.push(what);
    } catch (error) {
      this.fail(`${what}: ${messageOf(error)}`);
    }
  }

  /** Removes a table of kube-relay, if it exists. Returns whether nft can be used. */
  async removeTable(table: NftTable): Promise<boolean> {
    const name = `table ${table.family} ${table.name}`;
    try {
      const isThere = await new NftRunner({ commands: this.#commands }, table).isThere();
      if (isThere) await this.#deleteTables(name, [table]);
    } catch (error) {
      if (!(error instanceof NftError)) throw error;
      // Without the program, kube-relay cannot have written a table.
      if (!/ENOENT|not found/i.test(error.message)) this.unseen(name, error.message);
      return false;
    }
    return true;
  }

  /** Removes tables of nftables, all in one transaction. */
  async removeTables(whose: string, isLeftover: (table: NftTable) => boolean): Promise<void> {
    const seen = await listNftTables(this.#commands, this.signal);
    const tables = this.take("tables of nftables", seen)?.filter(isLeftover) ?? [];
    if (tables.length > 0) await this.#deleteTables(`${whose} of nftables`, tables);
  }

  async #deleteTables(what: string, tables: readonly NftTable[]): Promise<void> {
    await this.do(what, {
      command: ["nft", "-f", "-"],
      input: () => tables.map(deletionText),
      removes: tables.map(describeNftTable),
    });
  }

  /** Removes sets. The rules that refer to them have to be gone. */
  async removeSets(isLeftover: (name: string) => boolean): Promise<void> {
    const seen = await listSets(this.#commands, this.signal);
    await this.destroySets(this.take("ipsets", seen)?.filter(isLeftover) ?? []);
  }

  /**
   * Destroys sets by one process. A set in use is a failure of the run, and the other sets are still
   * destroyed. `proof` is a set by which a later run recognizes the owner of the remaining sets, and
   * stays with them.
   */
  async destroySets(sets: readonly string[], proof?: string): Promise<void> {
    let names = [...sets];
    while (names.length > 0) {
      const rest = names;
      const reason = await this.try({
        command: ["ipset", "restore"],
        input: () => rest.map((name) => `${destroyLine(name)}\n`),
        removes: rest.map((name) => `ipset ${name}`),
      });
      if (reason === undefined) return;
      // ipset stops at the line that failed. The lines before it took effect; those after it are retried.
      const line = refusedLine(reason) ?? 1;
      for (const name of rest.slice(0, line - 1)) this.#removed.push(`ipset ${name}`);
      names = rest.slice(line);
      // Another program destroyed it in the meantime.
      if (/does not exist/.test(reason)) continue;
      this.fail(`ipset ${rest[line - 1]}: ${reason}`);
      names = names.filter((name) => name !== proof);
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
