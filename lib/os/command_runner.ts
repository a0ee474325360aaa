/**
 * The only file that starts a process.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";
import { type Clock, systemClock } from "./clock.ts";
import { type CommandInput, tryKill, writeInput } from "./command_input.ts";
import { toolOf } from "./tools.ts";

/** The options of a command. */
export interface CommandOptions {
  /** The standard input of the command. */
  readonly stdin?: CommandInput;
  /** Variables in addition to those of kube-relay itself. */
  readonly env?: Readonly<Record<string, string>>;
  /** Time limit of the command; `Infinity` = none. @default {30000} */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /**
   * Whether the result of the same command a few seconds ago will do; see
   * {@linkcode RememberedResults}. @default {false}
   */
  readonly mayBeRecent?: boolean;
  /**
   * Receives each line of standard output instead of `stdout`, which stays empty. The command waits
   * while a line is pending. An error ends the command and is the cause of the CommandError.
   */
  readonly onLine?: LineTaker;
  /** As {@linkcode onLine}, for standard error and `stderr`. */
  readonly onErrorLine?: LineTaker;
  /** Maximum length of each output; more is an error. @default {134217728} */
  readonly longestOutput?: number;
}

/** The result of a command. */
export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs the tools of the machine. Arguments are a list; no shell is involved. */
export interface CommandRunner {
  /**
   * Runs a command to its end, with `LC_ALL=C`. Any exit code is a result. Throws a CommandError if
   * it cannot be run, does not end in time, or is ended by a signal.
   */
  run(program: string, args: readonly string[], options?: CommandOptions): Promise<CommandResult>;
}

/** Thrown if a command could not be run to its end. */
export class CommandError extends Error {
  override name = "CommandError";
  constructor(
    readonly program: string,
    readonly args: readonly string[],
    /** `crashed`: by a fault of the program; `killed`: by another program or the kernel. */
    readonly kind:
      | "not-found"
      | "not-permitted"
      | "timeout"
      | "aborted"
      | "crashed"
      | "killed"
      | "failed",
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

const DEFAULT_TIMEOUT_MS = 30_000;
/** The rules of 100,000 Services take a quarter of it; the longest string of V8 is 512 Mi. */
const LONGEST_OUTPUT = 128 * 1024 * 1024;
/** Time between SIGTERM and SIGKILL. */
const KILL_AFTER_MS = 1_000;

/** One call of {@linkcode CommandRunner.run}. */
interface Invocation extends CommandOptions {
  readonly program: string;
  readonly args: readonly string[];
}

/** Creates a runner of real processes. */
export function createCommandRunner(clock: Clock): CommandRunner {
  return { run: (program, args, options) => runToEnd(clock, { ...options, program, args }) };
}

/** The machine's processes. */
export const systemCommandRunner: CommandRunner = createCommandRunner(systemClock);

async function runToEnd(clock: Clock, invocation: Invocation): Promise<CommandResult> {
  if (invocation.signal?.aborted) throw endedError(invocation, "aborted");
  const child = spawn(invocation);
  const stdout = readOutput(child.stdout, invocation, invocation.onLine);
  const stderr = readOutput(child.stderr, invocation, invocation.onErrorLine);
  for (const { done } of [stdout, stderr]) {
    // A tool that prints nothing more would not notice that its output is closed.
    done.then(({ failure }) => failure !== undefined && tryKill(child, "SIGTERM"), () => {});
  }
  const ending = watchForEnd(clock, { child, invocation, giveUp: [stdout.cancel, stderr.cancel] });
  // Input is written while output is read: a tool with a full output pipe (64 KiB) stops reading,
  // so "write all, then read all" could hang.
  const writing = writeInput(child, invocation.stdin);
  try {
    const everything = Promise.all([child.status, stdout.done, stderr.done, writing]);
    const [status, taken, complaints, written] = await Promise.race([everything, ending.givenUp]);
    if (ending.kind) throw endedError(invocation, ending.kind);
    const failure = written.failure ?? taken.failure ?? complaints.failure;
    if (failure !== undefined) {
      throw commandError(invocation, "failed", `: ${messageOf(failure)}`, failure);
    }
    if (status.signal !== null) {
      const kind = FAULTS.includes(status.signal) ? "crashed" : "killed";
      throw commandError(invocation, kind, ` to its end: it was ended by ${status.signal}`);
    }
    return { code: status.code, stdout: stdout.text(), stderr: stderr.text() };
  } finally {
    ending.stop();
  }
}

function spawn(invocation: Invocation): Deno.ChildProcess {
  try {
    return new Deno.Command(invocation.program, {
      args: [...invocation.args],
      // Error texts of tools are matched, so they must not be translated.
      env: { ...invocation.env, LC_ALL: "C" },
      stdin: invocation.stdin === undefined ? "null" : "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
  } catch (error) {
    throw spawnError(invocation, error);
  }
}

/** Reads an output, as lines if the caller takes lines. */
function readOutput(stream: ReadableStream<Uint8Array>, options: CommandOptions, take?: LineTaker) {
  return take ? { ...readLines(stream, take), text: () => "" } : collectText(stream, options);
}

/**
 * Reads a stream to its end, or to `cancel()`. A tool that never stops printing gets a closed pipe,
 * because it must not fill the memory until its timeout.
 */
function collectText(
  stream: ReadableStream<Uint8Array>,
  { longestOutput = LONGEST_OUTPUT }: CommandOptions,
) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  const read = async (): Promise<{ failure?: unknown }> => {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      text += decoder.decode(value, { stream: true });
      if (text.length <= longestOutput) continue;
      text = "";
      await reader.cancel();
      return { failure: new RangeError(`it printed more than ${longestOutput} characters`) };
    }
    text += decoder.decode();
    return {};
  };
  return { done: read(), text: () => text, cancel: () => void reader.cancel() };
}

/**
 * Ends the child on timeout or abort: first by SIGTERM. A tool that ignores it, or whose children
 * keep its pipes open, gets at most {@linkcode KILL_AFTER_MS}.
 */
function watchForEnd(
  clock: Clock,
  { child, invocation, giveUp }: {
    child: Deno.ChildProcess;
    invocation: Invocation;
    giveUp: readonly (() => void)[];
  },
) {
  const givenUp = Promise.withResolvers<never>();
  const ending: { kind: "timeout" | "aborted" | undefined } = { kind: undefined };
  let killTimer: { cancel(): void } | undefined;
  const end = (kind: "timeout" | "aborted") => {
    if (ending.kind) return;
    ending.kind = kind;
    tryKill(child, "SIGTERM");
    killTimer = clock.setTimer(KILL_AFTER_MS, () => {
      tryKill(child, "SIGKILL");
      for (const cancel of giveUp) cancel();
      const leave = () => givenUp.reject(endedError(invocation, kind));
      // A killed process ends at once, unless it hangs in the kernel.
      killTimer = clock.setTimer(KILL_AFTER_MS, leave);
      void child.status.then(leave, leave);
    });
  };
  const onAbort = () => end("aborted");
  invocation.signal?.addEventListener("abort", onAbort, { once: true });
  const { timeoutMs = DEFAULT_TIMEOUT_MS } = invocation;
  // A timer of more than 25 days would end it then.
  const timer = timeoutMs === Infinity
    ? undefined
    : clock.setTimer(timeoutMs, () => end("timeout"));
  return Object.assign(ending, {
    givenUp: givenUp.promise,
    stop() {
      timer?.cancel();
      killTimer?.cancel();
      invocation.signal?.removeEventListener("abort", onAbort);
    },
  });
}

/** An error about a command. `what` follows its name and arguments. */
function commandError(
  { program, args }: Invocation,
  kind: CommandError["kind"],
  what: string,
  cause?: unknown,
): CommandError {
  const line = [program, ...args].join(" ");
  const shown = line.length > 200 ? `${line.slice(0, 200)}…` : line;
  const message = `Cannot run '${shown}'${what}`;
  return new CommandError(program, args, kind, message, { cause });
}

function endedError(invocation: Invocation, kind: "timeout" | "aborted"): CommandError {
  const { timeoutMs = DEFAULT_TIMEOUT_MS, signal } = invocation;
  const what = kind === "timeout"
    ? `: it did not end within ${timeoutMs} ms and was killed`
    : " to its end: the caller gave up";
  return commandError(invocation, kind, what, signal?.reason);
}

/** Signals that a program with a fault gets. Others come from another program or from the kernel. */
const FAULTS: readonly Deno.Signal[] = ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE"];

function spawnError({ program, args }: Invocation, cause: unknown): CommandError {
  const error = (kind: CommandError["kind"], reason: string) =>
    new CommandError(program, args, kind, `Cannot run '${program}': ${reason}`, { cause });
  if (cause instanceof Deno.errors.NotFound) {
    const cure = installCure(program);
    return error("not-found", `there is no such program on the PATH; ${cure}`);
  }
  if (cause instanceof Deno.errors.NotCapable) {
    // Deno resolves the names of --allow-run at its start: it refuses a tool that was missing then,
    // instead of reporting it as missing.
    const cure = toolOf(program)
      ? `${installCure(program)} and start kube-relay again`
      : `build with ALLOW_RUN_EXTRA=${program} ./compile.sh`;
    const source = "(from source: add it to --allow-run)";
    return error("not-permitted", `this kube-relay may not start it; ${cure} ${source}`);
  }
  if (cause instanceof Deno.errors.PermissionDenied) {
    return error("not-permitted", "the system does not let this user execute it");
  }
  return commandError({ program, args }, "failed", `: ${messageOf(cause)}`, cause);
}

function installCure(program: string): string {
  const debianPackage = toolOf(program)?.debianPackage;
  return debianPackage ? `install it (Debian package ${debianPackage})` : "install it";
}

/** Longer lines are cut: a program without line feeds must not fill the memory. */
const LONGEST_LINE = 64 * 1024;

/** Receives a line without its end. Reading pauses while the result is pending. */
type LineTaker = (line: string) => Promise<void> | void;

/**
 * Passes each line to `take` until the stream ends or `cancel()` is called, including a last line
 * without a line feed. `done` resolves to the error of `take`, if any, which cancels the stream.
 * Never holds the whole output.
 */
export function readLines(stream: ReadableStream<Uint8Array>, take: LineTaker): {
  readonly done: Promise<{ readonly failure?: unknown }>;
  readonly cancel: () => void;
} {
  const reader = stream.getReader();
  const read = async () => {
    try {
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        const lines = (rest + decoder.decode(value, { stream: !done })).split("\n");
        rest = lines.pop()!.slice(0, LONGEST_LINE);
        for (const line of lines) {
          // Most takers do not wait, and a turn for each line would cost more than their work.
          const taking = take(line);
          if (taking) await taking;
        }
        if (!done) continue;
        if (rest !== "") await take(rest);
        return {};
      }
    } catch (failure) {
      await reader.cancel().catch(() => {});
      return { failure };
    }
  };
  return { done: read(), cancel: () => void reader.cancel().catch(() => {}) };
}
