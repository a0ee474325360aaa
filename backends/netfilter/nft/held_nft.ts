/**
 * Keeps one `nft` for small writes. To start and end a process of its own takes several times as
 * long as the write itself: nft reads its files, and the kernel makes a netlink socket wait when it is
 * closed after a write.
 *
 * @module
 */
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import type { Clock, Timer } from "../../../lib/os/clock.ts";
import {
  CommandError,
  type CommandOptions,
  type CommandResult,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";

/** Without a home, `nft -i` neither reads `~/.nft.history`, which may be long, nor adds to it. */
const NO_HISTORY: Readonly<Record<string, string>> = { HOME: "/dev/null" };

/** A longer text is given to a process of its own: `nft -i` reads it byte by byte. */
export const MOST_HELD_CHARACTERS = 8_192;
/** nft has ended its start, or never will. */
const START_MS = 5_000;
/** Another program may write a large table meanwhile. */
const WRITE_MS = 15_000;
const IDLE_MS = 60_000;
/** nft keeps each line as its history. */
const MOST_WRITES = 1_000;
/** Commands run as they were given so long after a failure: each attempt may delay a write by seconds. */
const PAUSE_MS = 300_000;
const DAY_MS = 86_400_000;
const WRITTEN: CommandResult = { code: 0, stdout: "", stderr: "" };

/** What became of a line. `unclear`: the process ended before it said so. */
type Outcome = "applied" | "refused" | "unclear";

/**
 * Runs commands. A small `nft -f -` becomes a line of one `nft -i`, which ends after a minute without
 * any. Where that nft does not say that it has applied a line as a whole, the command runs as it was
 * given: it then fails for the reason that its own exit code and messages give. nft applies a line
 * atomically, so at most the same text is applied twice.
 */
export class HeldNft implements CommandRunner {
  readonly #clock: Pick<Clock, "now" | "setTimer">;
  readonly #commands: CommandRunner;
  readonly #turns = new OneAtATime();
  #session: NftSession | undefined;
  #idleTimer: Timer | undefined;
  /** `nft -i` is not tried before. It may be of no use, e.g. because nft was built without it. */
  #pausedUntil = -Infinity;

  constructor(
    { clock, commands }: {
      readonly clock: Pick<Clock, "now" | "setTimer">;
      readonly commands: CommandRunner;
    },
  ) {
    this.#clock = clock;
    this.#commands = commands;
  }

  async run(
    program: string,
    args: readonly string[],
    options: CommandOptions = {},
  ): Promise<CommandResult> {
    const { stdin, signal } = options;
    const isWrite = program === "nft" && `${args}` === "-f,-" && signal === undefined;
    const isSmall = typeof stdin === "string" && stdin.length <= MOST_HELD_CHARACTERS;
    if (!isWrite || !isSmall) return await this.#commands.run(program, args, options);
    const line = asOneLine(stdin);
    const outcome = line === undefined ? undefined : await this.#turns.run(() => this.#write(line));
    if (outcome === "applied") return WRITTEN;
    const result = await this.#commands.run(program, args, options);
    if (outcome === "unclear" && result.code !== 0) {
      // The refusal may be due to the same text, e.g. where it deletes what is already deleted.
      const message =
        "Cannot tell whether 'nft -i' has applied a text before it ended; applied again, " +
        `nft exits with ${result.code}: ${result.stderr.trim()}`;
      throw new CommandError("nft", args, "failed", message);
    }
    // Otherwise each write might take two attempts, or the time that a silent process is given.
    if (outcome && result.code === 0) {
      await this.#turns.run(() => Promise.resolve(this.#doWithout()));
    }
    return result;
  }

  /** Returns what became of the line; `undefined` = no nft has seen it. */
  async #write(line: string): Promise<Outcome | undefined> {
    this.#idleTimer?.cancel();
    if (!this.#session || this.#session.isOver) {
      if (this.#clock.now() < this.#pausedUntil) return undefined;
      this.#session = new NftSession(this.#clock, this.#commands);
      if (await this.#session.write("", START_MS) !== "applied") return this.#doWithout();
    }
    const session = this.#session;
    const outcome = await session.write(line, WRITE_MS);
    if (session.isOver) this.#close();
    else this.#idleTimer = this.#clock.setTimer(IDLE_MS, () => this.#close());
    return outcome;
  }

  #doWithout(): undefined {
    this.#idleTimer?.cancel();
    this.#close();
    this.#pausedUntil = this.#clock.now() + PAUSE_MS;
  }

  #close(): void {
    this.#session?.end();
    this.#session = undefined;
  }
}

/** The answer to one line. */
interface Answer {
  /** What the line behind it is: nft repeats it when it says that it does not understand it. */
  readonly mark: string;
  /** Lines of any kind: not all errors of nft are marked as such. */
  complaints: number;
  isError: boolean;
  readonly tell: (outcome: Outcome) => void;
}

/** Points at a part of the line above it. */
const POINTER = /^[ ^~]*$/;

/**
 * One process. nft says nothing about a line that it has applied. So each line is followed by one that
 * it does not understand: its complaint about that one comes last, and is then the only one.
 */
export class NftSession {
  /** What the process printed as errors, once it has ended. Rejects if it could not be run. */
  readonly ended: Promise<string>;
  readonly #clock: Pick<Clock, "setTimer">;
  readonly #killed = new AbortController();
  #nextInput = Promise.withResolvers<string | undefined>();
  #answer: Answer | undefined;
  #writes = 0;

  constructor(clock: Pick<Clock, "setTimer">, commands: CommandRunner) {
    this.#clock = clock;
    const over = () => this.#over();
    const run = commands.run("nft", ["-i"], {
      stdin: this.#input(),
      env: NO_HISTORY,
      // GNU readline prints a prompt and what it reads.
      onLine: () => {},
      onErrorLine: (line) => this.#take(line),
      timeoutMs: DAY_MS,
      signal: this.#killed.signal,
    });
    this.ended = run.then(({ stderr }) => stderr);
    this.ended.catch(() => {});
    run.then(over, over);
  }

  /** Whether it takes no more lines. A process that is being ended may still answer. */
  get isOver(): boolean {
    return this.#killed.signal.aborted || this.#writes >= MOST_WRITES;
  }

  /**
   * Returns what became of the line. A process that does not say so in time is ended. Until then it
   * may wait for the kernel, and would apply the line later.
   */
  async write(line: string, timeoutMs: number): Promise<Outcome | undefined> {
    if (this.isOver) return undefined;
    const mark = `kube-relay ${++this.#writes}`;
    const answered = Promise.withResolvers<Outcome>();
    this.#answer = { mark, complaints: 0, isError: false, tell: answered.resolve };
    const timer = this.#clock.setTimer(timeoutMs, () => this.#killed.abort());
    this.#nextInput.resolve(`${line}\n${mark}\n`);
    try {
      return await answered.promise;
    } finally {
      timer.cancel();
    }
  }

  /** Ends the process. No line may be on its way. */
  end(): void {
    this.#nextInput.resolve(undefined);
  }

  #over(): void {
    this.#killed.abort();
    this.#answer?.tell("unclear");
  }

  #take(line: string): void {
    const answer = this.#answer;
    if (answer === undefined) return;
    if (line === answer.mark) {
      this.#answer = undefined;
      answer.tell(answer.complaints === 1 && answer.isError ? "applied" : "refused");
    } else if (!POINTER.test(line)) {
      answer.complaints++;
      answer.isError = line.includes("Error: ");
    }
  }

  async *#input(): AsyncGenerator<string> {
    for (;;) {
      const text = await this.#nextInput.promise;
      if (text === undefined) return;
      this.#nextInput = Promise.withResolvers();
      yield text;
    }
  }
}

/**
 * Returns a text of commands as one line with the same meaning; `undefined` = it holds something that
 * means more to `nft -i` or to its line editor, e.g. a tab or a comment. Within braces a line may end
 * only where that means nothing: between rules it would mean as much as a semicolon.
 */
export function asOneLine(text: string): string | undefined {
  if (!/^[\n\x20-\x7e]*$/.test(text)) return undefined;
  let depth = 0;
  let words = "";
  for (const line of text.split("\n")) {
    const unquoted = line.replaceAll(/"[^"]*"/g, "").trim();
    if (/["#\\]/.test(unquoted)) return undefined;
    if (unquoted === "") continue;
    if (depth > 0 && !/[{,] $/.test(words) && !unquoted.startsWith("}")) return undefined;
    for (const brace of unquoted.matchAll(/[{}]/g)) depth += brace[0] === "{" ? 1 : -1;
    words += depth === 0 ? `${line}; ` : `${line} `;
  }
  return depth === 0 ? words.trimEnd() : undefined;
}
