/** kube-relay itself as a process in a namespace, under its own permission flags. */
import { askControl } from "../../../lib/tools/control/control_client.ts";
import type { StatusReport } from "../../../lib/tools/status/status_report.ts";
import type { StatusService } from "../../../lib/app/service/service_status.ts";
import { permissionFlags } from "../../../lib/os/permissions.ts";
import { DEADLINE_FACTOR } from "../deadline_factor.ts";
import { eventually } from "../eventually.ts";
import type { LineProcess } from "../drivers/line_process.ts";
import type { Namespace } from "./netns.ts";
import { programFile } from "../drivers/program_file.ts";

/** The options of the start. */
export interface RelayOptions {
  /** Folder for the control socket and the record of additions to the machine. */
  readonly folder: string;
  /** Further flags of the command line. */
  readonly args: readonly string[];
  /** A command that it is run by, such as `setpriv` with its flags. */
  readonly by?: readonly string[];
}

/** Longer time limits for slow machines, where a slow program is not stuck. */
const PATIENCE = DEADLINE_FACTOR === 1
  ? []
  : [String(DEADLINE_FACTOR), Deno.env.get("TMPDIR") ?? "/tmp"];
const MAIN = new URL(
  PATIENCE.length === 0 ? "../../../main.ts" : "../drivers/patient_relay.ts",
  import.meta.url,
);
const DENO_FLAGS = [...permissionFlags(), "--unstable-net", "--quiet", "--no-check"];

/** A running kube-relay. It ends with its namespace, if not before. */
export class RelayProcess implements AsyncDisposable {
  readonly #process: LineProcess;
  readonly #socket: string;
  /** The time of the start, by `performance.now()`. */
  readonly startedAt = performance.now();

  private constructor(process: LineProcess, socket: string) {
    this.#process = process;
    this.#socket = socket;
  }

  /** Starts it; it is on its way up when this returns. */
  static start(namespace: Namespace, { folder, args, by = [] }: RelayOptions): RelayProcess {
    const socket = `${folder}/control.sock`;
    const line = [
      ...PATIENCE,
      "--control-socket",
      socket,
      "--state-dir",
      `${folder}/state`,
      ...args,
    ];
    const process = namespace.startDeno(MAIN, line, { flags: DENO_FLAGS, by });
    return new RelayProcess(process, socket);
  }

  /** Runs it to its end, e.g. for `--cleanup`. Returns its output; throws when it fails. */
  static async run(namespace: Namespace, { folder, args, by = [] }: RelayOptions): Promise<string> {
    const line = [programFile(MAIN), ...PATIENCE, ...args, "--state-dir", `${folder}/state`];
    const [program = "", ...rest] = [...by, Deno.execPath(), "run", ...DENO_FLAGS, ...line];
    return await namespace.output(program, rest);
  }

  /** Returns the answer to `kube-relay status`. Throws if there is none. */
  async status(): Promise<StatusReport> {
    return await askControl(this.#socket, "/status");
  }

  /** Waits until its status is as wanted; otherwise the error contains its log. */
  async until(
    what: string,
    isSo: (status: StatusReport) => boolean,
    deadlineMs?: number,
  ): Promise<StatusReport> {
    let last: StatusReport | undefined;
    try {
      return await this.#eventually(what, async () => {
        last = await this.status().catch(() => undefined);
        return last !== undefined && isSo(last) ? last : undefined;
      }, deadlineMs);
    } catch (cause) {
      const seen = JSON.stringify(last, undefined, 1);
      throw new Error(`${what}\nlast status: ${seen}\nlog: ${this.log}`, { cause });
    }
  }

  /** Waits until it serves and no change is pending. */
  async settled(): Promise<StatusReport> {
    return await this.until("kube-relay has settled", isSettled);
  }

  /** Waits until it has logged these words. */
  async logged(words: string, deadlineMs?: number): Promise<void> {
    const isLogged = () => this.log.includes(words);
    await this.#eventually(`'${words}' in the log`, isLogged, deadlineMs).catch((cause) => {
      throw new Error(`'${words}' is not in the log:\n${this.log}`, { cause });
    });
  }

  /** As {@linkcode eventually}, but fails at once if the process has ended. */
  async #eventually<T>(
    what: string,
    ask: () => T | undefined | false | Promise<T | undefined | false>,
    deadlineMs?: number,
  ): Promise<T> {
    return await eventually(what, async () => {
      const { hasEnded } = this.#process;
      const answer = await ask();
      if (hasEnded && (answer === undefined || answer === false)) {
        throw new Error(`kube-relay has ended without: ${what}\n${this.log}`);
      }
      return answer;
    }, { ...(deadlineMs !== undefined && { deadlineMs }) });
  }

  /** The log, or the end of it. */
  get log(): string {
    return this.#process.errors;
  }

  /** Asks it to end, as systemd does, without waiting for it. */
  terminate(): void {
    this.#process.signal("SIGTERM");
  }

  /** Resolves to its exit code once it has ended. */
  async ended(): Promise<number> {
    return (await this.#process.status()).code;
  }

  /** Ends it in order. Returns its exit code. */
  async stop(): Promise<number> {
    this.terminate();
    return await this.ended();
  }

  /**
   * Ends it as `kill -9` does. Tests with the fake API server end it so: the goodbye of an HTTP/2
   * client now and then makes a server of Deno 2.9 abort (an assertion of its nghttp2, "closed_next").
   */
  async kill(): Promise<void> {
    await this.#process.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}

/** Whether everything that is known has been brought into effect. */
export function isSettled({ phase, families }: StatusReport): boolean {
  return phase === "serving" && families.every(({ pending, lastSync }) => !pending && lastSync);
}

/** All ServicePorts of a status, of both families. */
export function servicesOf({ families }: StatusReport): StatusService[] {
  return families.flatMap(({ services }) => services);
}
