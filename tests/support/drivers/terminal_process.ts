/**
 * A program on a real pseudo-terminal, which `script` of util-linux creates, and the content of its
 * screen.
 */
import { eventually } from "../eventually.ts";
import { runTool } from "./run_tool.ts";

// deno-lint-ignore no-control-regex
const TOKEN = /\x1b\[\??[0-9;]*[A-Za-z]|\r|\n|[^\x00-\x1f\x7f]/uy;

/** A screen with an alternate one, as xterm has it. */
class VirtualScreen {
  /** Whether the alternate screen is shown. */
  isAlternate = false;
  isCursorVisible = true;
  /** Times at which text was erased before it was overwritten: a reader sees this as flicker. */
  blanked = 0;
  /** Letters and lines of the alternate screen that had no room; they are cut off. */
  overflows = 0;
  #size: { readonly columns: number; readonly rows: number };
  #main: string[][] = [[]];
  #alternate: string[][] = [[]];
  #row = 0;
  #column = 0;
  #rest = "";

  constructor(size: { readonly columns: number; readonly rows: number }) {
    this.#size = size;
  }

  /** The rows that are seen, without blanks at their ends. */
  get lines(): readonly string[] {
    const cells = this.isAlternate ? this.#alternate : this.#main;
    const seen = this.isAlternate ? cells : cells.slice(-this.#size.rows);
    return seen.map((row) => Array.from(row, (cell) => cell ?? " ").join("").trimEnd());
  }

  get text(): string {
    return this.lines.join("\n").trimEnd();
  }

  resize(size: { readonly columns: number; readonly rows: number }): void {
    this.#size = size;
    this.#alternate.length = Math.min(this.#alternate.length, size.rows);
  }

  /** Takes output. A sequence that is cut off waits for its rest. */
  write(output: string): void {
    const text = this.#rest + output;
    let index = 0;
    while (index < text.length) {
      TOKEN.lastIndex = index;
      const token = TOKEN.exec(text)?.[0];
      if (token === undefined) break;
      this.#take(token);
      index += token.length;
    }
    this.#rest = text.slice(index);
    if (this.#rest.length > 20) throw new Error(`Unknown output ${JSON.stringify(this.#rest)}`);
  }

  #take(token: string): void {
    if (token === "\r") this.#column = 0;
    else if (token === "\n") this.#lineFeed();
    else if (token.startsWith("\x1b")) this.#sequence(token.slice(2));
    else this.#letter(token);
  }

  #letter(letter: string): void {
    if (this.isAlternate && this.#column >= this.#size.columns) return void this.overflows++;
    (this.#rows()[this.#row] ??= [])[this.#column++] = letter;
  }

  #lineFeed(): void {
    if (this.isAlternate && this.#row >= this.#size.rows - 1) return void this.overflows++;
    this.#row++;
    this.#rows()[this.#row] ??= [];
  }

  #sequence(name: string): void {
    if (name === "?1049h" || name === "?1049l") {
      this.isAlternate = name.endsWith("h");
      if (this.isAlternate) [this.#alternate, this.#row, this.#column] = [[[]], 0, 0];
      else [this.#row, this.#column] = [this.#main.length - 1, 0];
    } else if (name === "?25h" || name === "?25l") this.isCursorVisible = name.endsWith("h");
    else if (name === "H") [this.#row, this.#column] = [0, 0];
    else if (name === "K") (this.#rows()[this.#row] ??= []).length = this.#column;
    else if (name === "J") this.#eraseRest();
    else if (!/^(\?2026[hl]|[0-9;]*m)$/.test(name)) {
      throw new Error(`Unknown control sequence ESC [ ${name}`);
    }
  }

  #eraseRest(): void {
    if (this.#row === 0 && this.#column === 0) this.blanked++;
    const rows = this.#rows();
    rows.length = this.#row + 1;
    rows[this.#row]!.length = this.#column;
  }

  #rows(): string[][] {
    return this.isAlternate ? this.#alternate : this.#main;
  }
}

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
