/**
 * kube-relay as a process on loopback: userspace mode, fed by a folder of manifests, as a plain user.
 */
import { SILENT_LOGGER } from "../../../lib/log/silent_logger.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { DataProcesses } from "../../../lib/os/data_processes.ts";
import { askControl } from "../../../lib/tools/control/control_client.ts";
import type { StatusReport } from "../../../lib/tools/status/status_report.ts";
import { permissionFlags } from "../../../lib/os/permissions.ts";
import { eventually } from "../eventually.ts";
import { LineProcess } from "../drivers/line_process.ts";
import { programFile } from "../drivers/program_file.ts";
import { isSettled } from "./relay_process.ts";
import { unusedPort } from "../drivers/unused_port.ts";
import { ownFlags } from "../drivers/own_flags.ts";

/** The options of the start. */
export interface LoopbackRelayOptions {
  /** File name to content; the files exist before the start. */
  readonly manifests: Readonly<Record<string, string>>;
  /** When these files were last written. @default {now} */
  readonly times?: Readonly<Record<string, Date>>;
  /** Soft and hard limit of open files. @default {that of the test} */
  readonly openFiles?: number;
  readonly args?: readonly string[];
}

const MAIN = programFile(new URL("../../../main.ts", import.meta.url));

/** A running kube-relay with a folder of its own. Disposing of it ends it and removes the folder. */
export class LoopbackRelay implements AsyncDisposable {
  readonly folder: string;
  readonly healthPort = unusedPort();
  readonly metricsPort = unusedPort();
  readonly #options: LoopbackRelayOptions;
  #process: LineProcess;

  private constructor(folder: string, options: LoopbackRelayOptions) {
    this.folder = folder;
    this.#options = options;
    this.#process = this.#run(options);
  }

  #run({ openFiles, args = [] }: Pick<LoopbackRelayOptions, "openFiles" | "args">): LineProcess {
    const { folder } = this;
    const line = [
      ...openFiles === undefined ? [] : ["prlimit", `--nofile=${openFiles}:${openFiles}`],
      ...[Deno.execPath(), "run", ...permissionFlags()],
      ...["--unstable-net", "--quiet", "--no-check"],
      MAIN,
      "--mode=userspace",
      "--address-mode=none",
      `--manifests=${folder}/manifests`,
      ...ownFlags(folder, { healthPort: this.healthPort, metricsPort: this.metricsPort }),
      ...args,
    ];
    return new LineProcess(line[0]!, line.slice(1));
  }

  /** Starts it; it is on its way up when this resolves. */
  static async start(options: LoopbackRelayOptions): Promise<LoopbackRelay> {
    const folder = await Deno.makeTempDir({ prefix: "kube-relay-loopback-" });
    await Deno.mkdir(`${folder}/manifests`);
    for (const [name, text] of Object.entries(options.manifests)) {
      await Deno.writeTextFile(`${folder}/manifests/${name}`, text);
    }
    for (const [name, time] of Object.entries(options.times ?? {})) {
      await Deno.utime(`${folder}/manifests/${name}`, time, time);
    }
    return new LoopbackRelay(folder, options);
  }

  /** Where its data processes have their sockets. */
  get dataFolder(): string {
    return `${this.folder}/control.sock.kube-relay-data`;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** The log, or the end of it. */
  get log(): string {
    return this.#process.errors;
  }

  /** Returns the answer to `kube-relay status`. Throws if there is none. */
  status(): Promise<StatusReport> {
    return askControl(`${this.folder}/control.sock`, "/status");
  }

  /** Waits until it serves and no change is pending. */
  async settled(): Promise<StatusReport> {
    return await this.until("kube-relay has settled", async () => {
      const status = await this.status().catch(() => undefined);
      return status !== undefined && isSettled(status) && status;
    });
  }

  /** As `eventually()`; the error contains the log. */
  async until<T>(
    what: string,
    ask: () => T | undefined | false | Promise<T | undefined | false>,
  ): Promise<T> {
    try {
      return await eventually(what, ask);
    } catch (cause) {
      throw new Error(`${what}\nlog: ${this.log}`, { cause });
    }
  }

  /** The text of `/metrics`. */
  async scrape(): Promise<string> {
    return await (await fetch(`http://127.0.0.1:${this.metricsPort}/metrics`)).text();
  }

  /** The answer of `kube-relay explain` for a packet, in one line. */
  async explain(from: string, to: string, ...more: readonly string[]): Promise<string> {
    const flags = [...permissionFlags(), "--unstable-net", "--quiet", "--no-check"];
    const control = `--control-socket=${this.folder}/control.sock`;
    const { stdout } = await new Deno.Command(Deno.execPath(), {
      args: ["run", ...flags, MAIN, "explain", control, from, to, ...more],
      stderr: "inherit",
    }).output();
    return new TextDecoder().decode(stdout).replaceAll(/\s+/g, " ");
  }

  /** Ends it in order. Returns its exit code. */
  async stop(): Promise<number> {
    this.#process.signal("SIGTERM");
    return (await this.#process.status()).code;
  }

  /** Ends it by a signal, and starts it again at the same place. */
  async restart(
    signal: Deno.Signal,
    args = this.#options.args ?? [],
    between: () => Promise<unknown> = () => Promise.resolve(),
  ): Promise<void> {
    this.#process.signal(signal);
    await this.#process.status();
    await between();
    this.#process = this.#run({ ...this.#options, args });
  }

  /** Ends it as `kill -9` does. */
  async kill(): Promise<void> {
    await this.#process.kill();
  }

  /** Starts another one at the same place, with further arguments. */
  another(...more: readonly string[]): LineProcess {
    return this.#run({ ...this.#options, args: [...this.#options.args ?? [], ...more] });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.kill();
    const edges = { clock: systemClock, commands: systemCommandRunner, logger: SILENT_LOGGER };
    await DataProcesses.cleanUp(edges, this.dataFolder, { isDry: false });
    await Deno.remove(this.folder, { recursive: true });
  }
}
