/**
 * A server that a test starts as a process of its own: waits until it is ready, kills it, freezes it.
 *
 * @module
 */

/** The command line and environment of a server. */
export interface ServerProcessOptions {
  readonly program: string;
  readonly args: readonly string[];
  /** File that its standard error is appended to. */
  readonly log: string;
  /**
   * Resolves once it is ready.
   * @default waits for the line that the programs of `tests/apiserver` print
   */
  readonly ready?: () => Promise<void>;
}

/** Longest time that a server may take to be ready: a cold disk and a busy machine included. */
const READY_WITHIN_MS = 60_000;

/**
 * A running server. Its standard input stays open while we live: the programs of `tests/apiserver`
 * end with it, so a test run that is killed leaves none behind.
 */
export class ServerProcess implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #announced = Promise.withResolvers<void>();
  /** Settles when the process has ended and everything that it said has been read. */
  readonly #over: Promise<void>;
  #ended = false;

  private constructor(child: Deno.ChildProcess, log: Deno.FsFile) {
    this.#child = child;
    this.#over = this.#watch(log);
  }

  /** Starts the server and waits until it is ready; throws with its last words when it is not. */
  static async start(options: ServerProcessOptions): Promise<ServerProcess> {
    const log = await Deno.open(options.log, { append: true, create: true });
    const child = new Deno.Command(options.program, {
      args: [...options.args],
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const process = new ServerProcess(child, log);
    const timer = setTimeout(() => process.kill(), READY_WITHIN_MS);
    try {
      const ready = options.ready?.() ?? process.#announced.promise;
      await Promise.race([ready, process.#over]);
      if (process.#ended) throw new Error(await lastWords(options.log));
      return process;
    } catch (cause) {
      await process.kill();
      const command = [options.program, ...options.args].join(" ");
      throw new Error(`Cannot start '${command}': it was not ready, or ended before`, { cause });
    } finally {
      clearTimeout(timer);
    }
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** Ends it as `kill -9` does, also when it is frozen. Without effect when it has ended. */
  async kill(): Promise<void> {
    if (!this.#ended) this.#child.kill("SIGKILL");
    await this.#over;
  }

  /** Stops it from running; its sockets stay open and say nothing. */
  freeze(): void {
    this.#child.kill("SIGSTOP");
  }

  /** Lets it run again. */
  thaw(): void {
    this.#child.kill("SIGCONT");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #watch(log: Deno.FsFile): Promise<void> {
    const output = this.#readOutput();
    const errors = this.#child.stderr.pipeTo(log.writable);
    await this.#child.status;
    this.#ended = true;
    await Promise.all([output, errors, this.#child.stdin.close().catch(() => {})]);
  }

  /** Reads to the end, though one line is all that is wanted: a full pipe would hold up the process. */
  async #readOutput(): Promise<void> {
    for await (const bytes of this.#child.stdout) {
      if (bytes.includes("\n".charCodeAt(0))) this.#announced.resolve();
    }
  }
}

async function lastWords(log: string): Promise<string> {
  return (await Deno.readTextFile(log)).slice(-2000);
}
