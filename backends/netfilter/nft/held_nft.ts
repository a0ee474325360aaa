/**
 * Keeps one `nft` for small writes. To start and end a process of its own takes several times as
 * long as the write itself: nft reads its files, and the kernel makes a netlink socket wait when it is
 * closed after a write.
 *
 * @module
 */
import type { Clock, Timer } from "../../../lib/os/clock.ts";
import type {
  CommandOptions,
  CommandResult,
  CommandRunner,
} from "../../../lib/os/command_runner.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import { asOneLine, startOf } from "./held_nft_text.ts";

/** Without a home, `nft -i` neither reads `~/.nft.history`, which may be long, nor adds to it. */
export const NO_HISTORY: Readonly<Record<string, string>> = { HOME: "/dev/null" };

interface HeldNftDependencies {
  readonly clock: Pick<Clock, "setTimer">;
  readonly commands: CommandRunner;
}

/** A longer text is given to a process of its own: `nft -i` reads it byte by byte. */
const MOST_CHARACTERS = 8_192;
/** nft has ended its start, or never will. */
const START_MS = 5_000;
/** Another program may write a large table meanwhile. */
const WRITE_MS = 15_000;
const IDLE_MS = 60_000;
/** nft keeps each line as its history. */
const MOST_WRITES = 1_000;
const DAY_MS = 86_400_000;
const WRITTEN: CommandResult = { code: 0, stdout: "", stderr: "" };

/**
 * Runs commands. A small `nft -f -` becomes a line of one `nft -i`, which ends after a minute without
 * any. Where that nft does not say that it has applied a line as a whole, the command runs as it was
 * given: it then fails for the reason that its own exit code and messages give. nft applies a line
 * atomically, so at most the same text is applied twice.
 */
export class HeldNft implements CommandRunner {
  readonly #dependencies: HeldNftDependencies;
  readonly #turns = new OneAtATime();
  #session: NftSession | undefined;
  #idleTimer: Timer | undefined;
  /** Whether `nft -i` is of no use, e.g. because it was built without it. */
  #isUseless = false;

  constructor(dependencies: HeldNftDependencies) {
    this.#dependencies = dependencies;
  }

  async run(
    program: string,
    args: readonly string[],
    options: CommandOptions = {},
  ): Promise<CommandResult> {
    const { commands } = this.#dependencies;
    const { stdin, signal } = options;
    const isWrite = program === "nft" && `${args}` === "-f,-" && signal === undefined;
    if (!isWrite || this.#isUseless || stdin === undefined || isAsync(stdin)) {
      return await commands.run(program, args, options);
    }
    const { start, whole } = startOf(stdin, MOST_CHARACTERS);
    const line = start === undefined ? undefined : asOneLine(start);
    if (line !== undefined && await this.#turns.run(() => this.#write(line))) return WRITTEN;
    return await commands.run(program, args, { ...options, stdin: whole });
  }

  /** Whether the line was certainly applied. */
  async #write(line: string): Promise<boolean> {
    this.#idleTimer?.cancel();
    const session = await this.#open();
    if (session === undefined) return false;
    const isWritten = await session.write(line, WRITE_MS);
    if (session.isOver || session.writes >= MOST_WRITES) this.#close();
    else this.#idleTimer = this.#dependencies.clock.setTimer(IDLE_MS, () => this.#close());
    return isWritten;
  }

  async #open(): Promise<NftSession | undefined> {
    if (this.#session && !this.#session.isOver) return this.#session;
    const session = new NftSession(this.#dependencies);
    if (!await session.write("", START_MS)) {
      this.#isUseless = true;
      return undefined;
    }
    return this.#session = session;
  }

  #close(): void {
    this.#session?.end();
    this.#session = undefined;
  }
}

function isAsync(input: NonNullable<CommandOptions["stdin"]>): input is AsyncIterable<string> {
  return typeof input === "object" && Symbol.asyncIterator in input;
}

/** The answer to one line. */
interface Answer {
  /** What the line behind it is: nft repeats it when it says that it does not understand it. */
  readonly mark: string;
  errors: number;
  readonly tell: (isWritten: boolean) => void;
}

/**
 * One process. nft says nothing about a line that it has applied. So each line is followed by one that
 * it does not understand: its complaint about that one comes last, and is then the only one.
 */
class NftSession {
  readonly #clock: Pick<Clock, "setTimer">;
  readonly #killed = new AbortController();
  #nextInput = Promise.withResolvers<string | undefined>();
  #answer: Answer | undefined;
  #isOver = false;
  #writes = 0;

  constructor({ clock, commands }: HeldNftDependencies) {
    this.#clock = clock;
    const over = () => this.#over();
    commands.run("nft", ["-i"], {
      stdin: this.#input(),
      env: NO_HISTORY,
      // GNU readline prints a prompt and what it reads.
      onLine: () => {},
      onErrorLine: (line) => this.#take(line),
      timeoutMs: DAY_MS,
      signal: this.#killed.signal,
    }).then(over, over);
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get writes(): number {
    return this.#writes;
  }

  /** Whether the line was applied; a process that does not say so in time is ended. */
  async write(line: string, timeoutMs: number): Promise<boolean> {
    if (this.#isOver) return false;
    const mark = `kube-relay ${++this.#writes}`;
    const answered = Promise.withResolvers<boolean>();
    this.#answer = { mark, errors: 0, tell: answered.resolve };
    const timer = this.#clock.setTimer(timeoutMs, () => this.#kill());
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

  #kill(): void {
    this.#killed.abort();
    this.#over();
  }

  #over(): void {
    this.#isOver = true;
    this.#answer?.tell(false);
  }

  #take(line: string): void {
    const answer = this.#answer;
    if (answer === undefined) return;
    if (line.includes("Error: ")) answer.errors++;
    if (line !== answer.mark) return;
    this.#answer = undefined;
    answer.tell(answer.errors === 1);
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
