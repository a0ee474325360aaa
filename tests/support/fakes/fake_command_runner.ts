/** A command runner that starts nothing: it answers from a script and records its calls. */
import {
  CommandError,
  type CommandOptions,
  type CommandResult,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";

/** One command that was run. */
export interface CommandCall {
  readonly program: string;
  readonly args: readonly string[];
  /** Program and arguments, separated by spaces. */
  readonly line: string;
  /** Its whole input; the empty string when it was given none. */
  readonly stdin: string;
}

/** The result of a command. The defaults are exit code 0 and no output. */
export type CommandAnswer = Partial<CommandResult>;

/** The failure of a call: a CommandError of this kind, or this result. */
export type CommandFailure = CommandError["kind"] | CommandAnswer;

/** The progress of a call before it fails. */
export interface FailureOptions {
  /** Whether the command took effect nevertheless, so that its outcome is unknown to the caller. */
  readonly carriedOut?: boolean;
}

interface Script {
  readonly prefix: string;
  readonly answer: (call: CommandCall) => CommandAnswer;
}

interface PlannedFailure extends FailureOptions {
  readonly failure: CommandFailure;
}

/** A {@linkcode CommandRunner} for tests. A command that no script answers is an error of the test. */
export class FakeCommandRunner implements CommandRunner {
  /** Every command so far, failed ones too. */
  readonly calls: CommandCall[] = [];
  readonly #scripts: Script[] = [];
  readonly #failures = new Map<number, PlannedFailure>();

  /** Answers each command whose line starts with `prefix`. The last definition wins. */
  on(prefix: string, answer: CommandAnswer | ((call: CommandCall) => CommandAnswer)): this {
    this.#scripts.unshift({
      prefix,
      answer: typeof answer === "function" ? answer : () => answer,
    });
    return this;
  }

  /** Makes the n-th command fail, counted from 1 at the first one ever. */
  failCall(n: number, failure: CommandFailure, options: FailureOptions = {}): this {
    this.#failures.set(n, { failure, ...options });
    return this;
  }

  /** Makes the next command fail. */
  failNext(failure: CommandFailure, options: FailureOptions = {}): this {
    return this.failCall(this.calls.length + 1, failure, options);
  }

  run(
    program: string,
    args: readonly string[],
    { stdin = "", signal, onLine }: CommandOptions = {},
  ): Promise<CommandResult> {
    // As with a real process, nothing of what goes wrong is thrown at the caller at once.
    return Promise.resolve().then(async () => {
      const text = typeof stdin === "string" ? stdin : await joined(stdin);
      const call = { program, args, line: [program, ...args].join(" "), stdin: text };
      if (signal?.aborted) throw commandError(call, "aborted");
      this.calls.push(call);
      const result = this.#answer(call);
      if (!onLine) return result;
      try {
        for (const line of result.stdout.split("\n")) if (line !== "") await onLine(line);
      } catch (cause) {
        throw commandError(call, "failed", cause);
      }
      return { ...result, stdout: "" };
    });
  }

  #answer(call: CommandCall): CommandResult {
    const planned = this.#failures.get(this.calls.length);
    if (planned === undefined) return { ...NOTHING_SAID, ...this.#carryOut(call) };
    if (planned.carriedOut) this.#carryOut(call);
    if (typeof planned.failure === "string") throw commandError(call, planned.failure);
    return { ...NOTHING_SAID, ...planned.failure };
  }

  #carryOut(call: CommandCall): CommandAnswer {
    const script = this.#scripts.find(({ prefix }) => call.line.startsWith(prefix));
    if (script === undefined) throw new Error(`No script of the test answers '${call.line}'`);
    return script.answer(call);
  }
}

/** An input that is held open ends with its holder. */
async function joined(pieces: Iterable<string> | AsyncIterable<string>): Promise<string> {
  let text = "";
  for await (const piece of pieces) text += piece;
  return text;
}

const NOTHING_SAID: CommandResult = { code: 0, stdout: "", stderr: "" };

function commandError(
  { program, args, line }: CommandCall,
  kind: CommandError["kind"],
  cause?: unknown,
): CommandError {
  const reason = cause instanceof Error ? cause.message : kind;
  return new CommandError(program, args, kind, `Cannot run '${line}': ${reason}`, { cause });
}
