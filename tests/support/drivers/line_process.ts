/** A process with line-based input and output. */
import { DEADLINE_FACTOR } from "../deadline_factor.ts";

/** Longest wait for a line or for the end of a process. */
const DEADLINE_MS = 90_000 * DEADLINE_FACTOR;
/** The number of characters kept from standard error. */
const KEPT_ERRORS = 100_000;

/** A child process. The caller ends it by {@linkcode kill} or by disposing of it. */
export class LineProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #command: string;
  readonly #lines: string[] = [];
  readonly #over: Promise<Deno.CommandStatus>;
  readonly #stdin: WritableStreamDefaultWriter<Uint8Array>;
  #errors = "";
  #ended = false;
  /** Wakes the callers that wait for a line or for the end. */
  #news = Promise.withResolvers<void>();

  constructor(program: string, args: readonly string[]) {
    this.#command = [program, ...args].join(" ");
    this.#child = new Deno.Command(program, {
      args: [...args],
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    this.#stdin = this.#child.stdin.getWriter();
    this.#over = this.#watch();
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** The text on its standard error, or the end of it. */
  get errors(): string {
    return this.#errors;
  }

  /** Whether it has ended. */
  get hasEnded(): boolean {
    return this.#ended;
  }

  /** Takes the next line that it prints. Throws, with its last words, when there is none in time. */
  async nextLine(): Promise<string> {
    const timer = setTimeout(() => this.#announce(), DEADLINE_MS);
    const start = performance.now();
    try {
      for (;;) {
        const line = this.#lines.shift();
        if (line !== undefined) return line;
        if (this.#ended) throw this.#failure("it has ended");
        if (performance.now() - start > DEADLINE_MS - 1) throw this.#failure("it is silent");
        await this.#news.promise;
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Writes one line to its standard input. */
  async writeLine(line: string): Promise<void> {
    await this.#stdin.write(new TextEncoder().encode(`${line}\n`));
  }

  /** Sends a signal; without effect when it has ended. */
  signal(signal: Deno.Signal): void {
    if (!this.#ended) this.#child.kill(signal);
  }

  /** Resolves once it has ended and everything that it said has been read. */
  status(): Promise<Deno.CommandStatus> {
    return this.#over;
  }

  /** Ends it at once, and waits for that. */
  async kill(): Promise<Deno.CommandStatus> {
    this.signal("SIGKILL");
    return await this.#over;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #watch(): Promise<Deno.CommandStatus> {
    const output = this.#readLines();
    const errors = this.#readErrors();
    const status = await this.#child.status;
    this.#ended = true;
    await Promise.all([output, errors, this.#stdin.close().catch(() => {})]);
    this.#announce();
    return status;
  }

  async #readLines(): Promise<void> {
    let rest = "";
    for await (const text of this.#child.stdout.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      this.#lines.push(...lines);
      this.#announce();
    }
  }

  async #readErrors(): Promise<void> {
    for await (const text of this.#child.stderr.pipeThrough(new TextDecoderStream())) {
      this.#errors = (this.#errors + text).slice(-KEPT_ERRORS);
    }
  }

  #announce(): void {
    const { resolve } = this.#news;
    this.#news = Promise.withResolvers<void>();
    resolve();
  }

  #failure(reason: string): Error {
    return new Error(`Cannot read a line of '${this.#command}': ${reason}\n${this.#errors}`);
  }
}
