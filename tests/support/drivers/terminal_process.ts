/**
 * A program on a real pseudo-terminal, which `script` of util-linux creates, and the content of its
 * screen.
 *
 * @module
 */
import { eventually } from "../eventually.ts";
import { runTool } from "./run_tool.ts";
import { VirtualScreen } from "./virtual_screen.ts";

/** The command, and the size of its terminal. */
export interface TerminalProcessOptions {
  /** An empty folder for the files of the terminal. */
  readonly folder: string;
  /** The program with its arguments; none may need quotes. */
  readonly command: readonly string[];
  readonly columns: number;
  readonly rows: number;
}

/** A running program. It is ended when it is disposed of. */
export class TerminalProcess implements AsyncDisposable {
  readonly screen: VirtualScreen;
  readonly #folder: string;
  readonly #child: Deno.ChildProcess;
  readonly #stdin: WritableStreamDefaultWriter<Uint8Array>;
  readonly #reading: Promise<void>;
  #failure: unknown;

  constructor({ folder, command, columns, rows }: TerminalProcessOptions) {
    this.#folder = folder;
    this.screen = new VirtualScreen({ columns, rows });
    // The shell outlives the program and reports the state of the terminal.
    const line = [
      // Ctrl-C is for the program alone.
      "trap : INT",
      `stty rows ${rows} cols ${columns}`,
      `tty >${folder}/tty`,
      `stty -g >${folder}/before`,
      `sh -c 'echo $$ >${folder}/pid; exec ${command.join(" ")}'`,
      `echo $? >${folder}/code`,
      `stty -g >${folder}/after`,
    ].join("; ");
    this.#child = new Deno.Command("script", {
      args: ["-qfec", line, "/dev/null"],
      env: { SHELL: "/bin/sh", TERM: "xterm" },
      stdin: "piped",
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#stdin = this.#child.stdin.getWriter();
    this.#reading = this.#read();
  }

  /** Waits until the screen is as wanted; otherwise the error contains its content. */
  async shows(what: string, isSo: (screen: VirtualScreen) => boolean): Promise<void> {
    try {
      await eventually(what, () => {
        if (this.#failure !== undefined) throw this.#failure;
        return isSo(this.screen);
      });
    } catch (cause) {
      throw new Error(`${what}\n${this.screen.text}`, { cause });
    }
  }

  async type(keys: string): Promise<void> {
    await this.#stdin.write(new TextEncoder().encode(keys));
  }

  /** The program itself, not what runs it. */
  async pid(): Promise<number> {
    return Number(await this.#readReport("pid"));
  }

  async signal(name: Deno.Signal): Promise<void> {
    Deno.kill(await this.pid(), name);
  }

  /** `T…` = it is stopped. */
  async state(): Promise<string> {
    const args = ["-o", "stat=", "-p", String(await this.pid())];
    const { stdout } = await new Deno.Command("ps", { args }).output();
    return new TextDecoder().decode(stdout).trim();
  }

  /** Resizes the terminal; the program gets SIGWINCH. */
  async resize(size: { readonly columns: number; readonly rows: number }): Promise<void> {
    this.screen.resize(size);
    const { columns, rows } = size;
    const tty = await this.#readReport("tty");
    await runTool("stty", ["-F", tty, "rows", String(rows), "cols", String(columns)]);
  }

  /** Waits for its end: the exit code, and whether the terminal has its settings of before. */
  async ended(): Promise<{ readonly code: number; readonly isRestored: boolean }> {
    const code = Number(await this.#readReport("code"));
    const [before, after] = [await this.#readReport("before"), await this.#readReport("after")];
    await this.#child.status;
    await this.#reading;
    return { code, isRestored: before === after };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      Deno.kill(await this.pid(), "SIGKILL");
    } catch {
      // It has ended.
    }
    await this.#stdin.close().catch(() => {});
    await this.#child.status;
    await this.#reading;
  }

  async #readReport(name: string): Promise<string> {
    return await eventually(`${name} is reported`, async () => {
      const text = await Deno.readTextFile(`${this.#folder}/${name}`).catch(() => "");
      return text.endsWith("\n") ? text.trim() : undefined;
    });
  }

  async #read(): Promise<void> {
    try {
      for await (const text of this.#child.stdout.pipeThrough(new TextDecoderStream())) {
        this.screen.write(text);
      }
    } catch (error) {
      this.#failure = error;
    }
  }
}
