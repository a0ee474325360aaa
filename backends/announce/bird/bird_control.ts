/**
 * Client of BIRD's control socket.
 *
 * BIRD answers a command with lines that begin with a code of four digits. `1002-` is followed by
 * more lines, `0013 ` is the last one, and a line that begins with a space continues the one before.
 *
 * @module
 */
import { messageOf } from "../../../lib/log/message_of.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { UnixConnection } from "../../../lib/os/network.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import { CONFIGURATION_ID, SECRETS_ID } from "./bird_config.ts";

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
  /** BIRD's own words, e.g. `bird.conf:12:3 syntax error`; for other errors the message. */
  readonly reason: string;
  /** BIRD's code, if it answered. */
  readonly code: number | undefined;

  constructor(command: string, kind: BirdErrorKind, reason: string, code?: number) {
    super(`Cannot run '${command}' in BIRD: ${reason}`);
    this.kind = kind;
    this.reason = reason;
    this.code = code;
  }
}

/** Longest time of a command. BIRD answers between its other work. */
const TIMEOUT_MS = 10_000;

/** Codes of errors that the caller can act on. */
const ERROR_KINDS: Readonly<Record<number, BirdErrorKind>> = {
  8001: "absent",
  8002: "configuration",
  8003: "absent",
  9001: "absent",
};

/** The result of {@linkcode BirdControl.configurationInForce}. */
export interface ConfigurationInForce {
  /** `undefined` = BIRD runs with a configuration that kube-relay did not write. */
  readonly id: string | undefined;
  readonly secretsId: string | undefined;
}

/** Runs commands, one at a time. Each has a connection of its own, so a restart of BIRD breaks none. */
export class BirdControl {
  readonly #clock: Pick<Clock, "setTimer">;
  readonly #connect: (path: string) => Promise<UnixConnection>;
  readonly #socket: string;
  readonly #longestReply: number;
  readonly #turns = new OneAtATime();

  /** `longestReply`: in bytes; a million routes by default. */
  constructor(
    clock: Pick<Clock, "setTimer">,
    connect: (path: string) => Promise<UnixConnection>,
    socket: string,
    longestReply = 64 * 1024 * 1024,
  ) {
    this.#clock = clock;
    this.#connect = connect;
    this.#socket = socket;
    this.#longestReply = longestReply;
  }

  /** Runs a command. Throws a BirdError. */
  run(command: string): Promise<readonly BirdLine[]> {
    return this.#turns.run(() => this.#run(command));
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
    const socket = this.#socket;
    let connection: UnixConnection | undefined;
    let isOver = false;
    const late = Promise.withResolvers<never>();
    const timer = this.#clock.setTimer(TIMEOUT_MS, () => {
      const reason = `no answer on ${socket} within ${TIMEOUT_MS} ms`;
      late.reject(new BirdError(command, "timeout", reason));
    });
    const talk = async () => {
      connection = await this.#connect(socket);
      if (isOver) connection.close();
      const lines = linesOf(connection, this.#longestReply);
      // The greeting.
      await readReply(lines);
      let rest: Uint8Array = new TextEncoder().encode(`${command}\n`);
      while (rest.length > 0) rest = rest.subarray(await connection.write(rest));
      return await readReply(lines);
    };
    const talking = talk();
    try {
      const reply = await Promise.race([talking, late.promise]);
      const { code = 0, text = "" } = reply.at(-1) ?? {};
      if (code < 8000) return reply;
      throw new BirdError(command, ERROR_KINDS[code] ?? "failed", text, code);
    } catch (error) {
      if (error instanceof BirdError) throw error;
      if (error instanceof RangeError) throw new BirdError(command, "unreadable", error.message);
      throw new BirdError(command, "down", downReason(socket, error));
    } finally {
      timer.cancel();
      isOver = true;
      connection?.close();
      // Closing ends a read that is pending after the time-out.
      talking.catch(() => {});
    }
  }
}

function downReason(socket: string, cause: unknown): string {
  if (cause instanceof Deno.errors.UnexpectedEof) return `BIRD closed the connection on ${socket}`;
  const known = cause instanceof Deno.errors.NotFound || cause instanceof Deno.errors.BrokenPipe ||
    cause instanceof Deno.errors.ConnectionRefused || cause instanceof Deno.errors.ConnectionReset;
  return known ? `BIRD does not run or does not listen on ${socket}` : messageOf(cause);
}

const CHUNK_BYTES = 64 * 1024;
/** BIRD's own lines are shorter. The time to find the end of a line grows with its square. */
const LONGEST_LINE = 1024 * 1024;

/** Throws a RangeError for what is no answer of BIRD, or too long. */
async function* linesOf(connection: UnixConnection, longest: number): AsyncGenerator<string, void> {
  const buffer = new Uint8Array(CHUNK_BYTES);
  const decoder = new TextDecoder();
  let [length, rest] = [0, ""];
  for (;;) {
    const count = await connection.read(buffer);
    if (count === null) throw new Deno.errors.UnexpectedEof();
    length += count;
    if (length > longest) throw new RangeError(`the answer has more than ${longest} bytes`);
    const text = decoder.decode(buffer.subarray(0, count), { stream: true });
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > LONGEST_LINE) {
      throw new RangeError(`a line of the answer has more than ${LONGEST_LINE} characters`);
    }
    yield* lines;
  }
}

async function readReply(lines: AsyncGenerator<string, void>): Promise<readonly BirdLine[]> {
  const reply: BirdLine[] = [];
  let code = 0;
  for (;;) {
    const line = (await lines.next()).value ?? "";
    // Log messages that BIRD prints in between.
    if (line.startsWith("+")) continue;
    if (line.startsWith(" ")) {
      reply.push({ code, text: line.slice(1) });
      continue;
    }
    const [, digits, separator, text = ""] = /^(\d{4})([ -])(.*)$/s.exec(line) ?? [];
    if (digits === undefined) throw new RangeError(`unexpected answer '${line.slice(0, 100)}'`);
    code = Number(digits);
    reply.push({ code, text });
    if (separator === " ") return reply;
  }
}
