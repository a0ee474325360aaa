/**
 * Client of BIRD's control socket.
 *
 * BIRD answers a command with lines that begin with a code of four digits. `1002-` is followed by
 * more lines, `0013 ` is the last one, and a line that begins with a space continues the one before.
 *
 * @module
 */
import { messageOf } from "../../lib/log/message_of.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { UnixConnection } from "../../lib/os/network.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { CONFIGURATION_ID, quoted, SECRETS_ID } from "./bird_text.ts";

/** A line of a reply. */
export interface BirdLine {
  readonly code: number;
  /** Without the code. A continuation keeps its further indentation. */
  readonly text: string;
}

/**
 * Why a command has no result:
 *
 * - `down`: no process listens on the socket, or it closed the connection;
 * - `timeout`: BIRD did not answer in time;
 * - `unreadable`: the answer is too long or is not one of BIRD;
 * - `configuration`: BIRD refused the configuration file (8002);
 * - `absent`: the command names an object that BIRD does not have (8001, 8003, 9001 …);
 * - `failed`: another error of BIRD (8xxx, 9xxx).
 */
export type BirdErrorKind =
  | "down"
  | "timeout"
  | "unreadable"
  | "configuration"
  | "absent"
  | "failed";

/** A command that failed. */
export class BirdError extends Error {
  override name = "BirdError";
  readonly kind: BirdErrorKind;
  /** BIRD's code, if it answered. */
  readonly code?: number;
  /** BIRD's own words, e.g. `bird.conf:12:3 syntax error`; for other errors the message. */
  readonly reason: string;

  constructor(
    command: string,
    { code, kind, reason, ...options }: ErrorOptions & {
      readonly code?: number;
      readonly kind: BirdErrorKind;
      readonly reason: string;
    },
  ) {
    super(`Cannot run '${command}' in BIRD: ${reason}`, options);
    this.kind = kind;
    this.reason = reason;
    if (code !== undefined) this.code = code;
  }
}

/** Codes of errors that the caller can act on. */
const ERROR_KINDS: Readonly<Record<number, BirdErrorKind>> = {
  8001: "absent",
  8002: "configuration",
  8003: "absent",
  9001: "absent",
};

/** The edges of the client. */
export interface BirdControlDependencies {
  readonly clock: Pick<Clock, "setTimer">;
  readonly connect: (path: string) => Promise<UnixConnection>;
}

/** The settings of the client. */
export interface BirdControlOptions {
  /** The path of BIRD's control socket. */
  readonly socket: string;
  /** Longest time of a command. BIRD answers between its other work. @default {10000} */
  readonly timeoutMs?: number;
  /** @default {67108864} a million routes */
  readonly longestReply?: number;
}

/** The result of {@linkcode BirdControl.configurationInForce}. */
export interface ConfigurationInForce {
  /** `undefined` = BIRD runs with a configuration that kube-relay did not write. */
  readonly id: string | undefined;
  readonly secretsId: string | undefined;
}

/** Runs commands, one at a time. Each has a connection of its own, so a restart of BIRD breaks none. */
export class BirdControl {
  readonly #dependencies: BirdControlDependencies;
  readonly #options: Required<BirdControlOptions>;
  readonly #turns = new OneAtATime();

  constructor(dependencies: BirdControlDependencies, options: BirdControlOptions) {
    this.#dependencies = dependencies;
    this.#options = { timeoutMs: 10_000, longestReply: 64 * 1024 * 1024, ...options };
  }

  /** Runs a command. Throws a BirdError. */
  run(command: string): Promise<readonly BirdLine[]> {
    return this.#turns.run(() => this.#run(command));
  }

  /** Has BIRD read a file without applying it. Throws a BirdError with the file, line and column. */
  async check(file: string): Promise<void> {
    await this.run(`configure check ${quoted(file)}`);
  }

  /** Has BIRD apply its configuration file. Sessions whose settings stay the same go on. */
  async configure(): Promise<void> {
    await this.run("configure");
  }

  /** Has BIRD return to the configuration before the last {@linkcode configure}. */
  async undo(): Promise<void> {
    await this.run("configure undo");
  }

  /** Identifies the configuration that BIRD runs with. */
  async configurationInForce(): Promise<ConfigurationInForce> {
    const id = await this.#constant(CONFIGURATION_ID);
    return { id, secretsId: id === undefined ? undefined : await this.#constant(SECRETS_ID) };
  }

  async #constant(name: string): Promise<string | undefined> {
    try {
      return (await this.run(`eval ${name}`)).at(-1)?.text;
    } catch (error) {
      if (error instanceof BirdError && error.kind === "absent") return undefined;
      throw error;
    }
  }

  async #run(command: string): Promise<readonly BirdLine[]> {
    const { clock, connect } = this.#dependencies;
    const { longestReply, socket, timeoutMs } = this.#options;
    let connection: UnixConnection | undefined;
    let isOver = false;
    const late = Promise.withResolvers<never>();
    const timer = clock.setTimer(timeoutMs, () => {
      const reason = `no answer on ${socket} within ${timeoutMs} ms`;
      late.reject(new BirdError(command, { kind: "timeout", reason }));
    });
    const talk = async () => {
      connection = await connect(socket).catch((cause) => {
        throw new BirdError(command, { kind: "down", reason: downReason(socket, cause), cause });
      });
      if (isOver) connection.close();
      const reader = new ReplyReader(connection, { command, longestReply, socket });
      // The greeting.
      await reader.next();
      await writeAll(connection, `${command}\n`).catch((cause) => {
        throw new BirdError(command, { kind: "down", reason: downReason(socket, cause), cause });
      });
      return await reader.next();
    };
    const talking = talk();
    try {
      return throwErrors(command, await Promise.race([talking, late.promise]));
    } finally {
      timer.cancel();
      isOver = true;
      connection?.close();
      // Closing ends a read that is pending after the time-out.
      talking.catch(() => {});
    }
  }
}

function throwErrors(command: string, lines: readonly BirdLine[]): readonly BirdLine[] {
  const { code = 0, text: reason = "" } = lines.at(-1) ?? {};
  if (code < 8000) return lines;
  throw new BirdError(command, { code, kind: ERROR_KINDS[code] ?? "failed", reason });
}

function downReason(socket: string, cause: unknown): string {
  const known = cause instanceof Deno.errors.NotFound || cause instanceof Deno.errors.BrokenPipe ||
    cause instanceof Deno.errors.ConnectionRefused || cause instanceof Deno.errors.ConnectionReset;
  return known ? `BIRD does not run or does not listen on ${socket}` : messageOf(cause);
}

async function writeAll(connection: UnixConnection, text: string): Promise<void> {
  let rest: Uint8Array = new TextEncoder().encode(text);
  while (rest.length > 0) rest = rest.subarray(await connection.write(rest));
}

const CHUNK_BYTES = 64 * 1024;
/** BIRD's own lines are shorter. The time to find the end of a line grows with its square. */
const LONGEST_LINE = 1024 * 1024;

/** Bounds of a reply, and words for its errors. */
interface ReplyOptions {
  readonly command: string;
  readonly longestReply: number;
  readonly socket: string;
}

/** Reads replies from one connection. */
class ReplyReader {
  readonly #connection: UnixConnection;
  readonly #options: ReplyOptions;
  readonly #buffer = new Uint8Array(CHUNK_BYTES);
  readonly #decoder = new TextDecoder();
  #pending: readonly string[] = [];
  /** Index of the next line in `#pending`. */
  #position = 0;
  #rest = "";
  #length = 0;

  constructor(connection: UnixConnection, options: ReplyOptions) {
    this.#connection = connection;
    this.#options = options;
  }

  /** Returns the lines of the next reply. */
  async next(): Promise<readonly BirdLine[]> {
    const lines: BirdLine[] = [];
    let code = 0;
    for (;;) {
      const line = await this.#nextLine();
      // Log messages that BIRD prints in between.
      if (line.startsWith("+")) continue;
      if (line.startsWith(" ")) {
        lines.push({ code, text: line.slice(1) });
        continue;
      }
      const [, digits, separator, text = ""] = /^(\d{4})([ -])(.*)$/s.exec(line) ?? [];
      if (digits === undefined) {
        throw this.#failure("unreadable", `unexpected answer '${line.slice(0, 100)}'`);
      }
      code = Number(digits);
      lines.push({ code, text });
      if (separator === " ") return lines;
    }
  }

  async #nextLine(): Promise<string> {
    for (;;) {
      const line = this.#pending[this.#position++];
      if (line !== undefined) return line;
      const count = await this.#connection.read(this.#buffer).catch((cause) => {
        throw this.#failure("down", downReason(this.#options.socket, cause));
      });
      if (count === null) {
        throw this.#failure("down", `BIRD closed the connection on ${this.#options.socket}`);
      }
      this.#length += count;
      if (this.#length > this.#options.longestReply) {
        throw this.#failure(
          "unreadable",
          `the answer has more than ${this.#options.longestReply} bytes`,
        );
      }
      const text = this.#rest +
        this.#decoder.decode(this.#buffer.subarray(0, count), { stream: true });
      const lines = text.split("\n");
      this.#rest = lines.pop() ?? "";
      if (this.#rest.length > LONGEST_LINE) {
        const reason = `a line of the answer has more than ${LONGEST_LINE} characters`;
        throw this.#failure("unreadable", reason);
      }
      this.#pending = lines;
      this.#position = 0;
    }
  }

  #failure(kind: BirdErrorKind, reason: string): BirdError {
    return new BirdError(this.#options.command, { kind, reason });
  }
}
