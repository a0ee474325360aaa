import { dirname } from "node:path";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { systemClock } from "../../os/clock.ts";
import type { HttpTimes } from "../../os/http_connection.ts";
import { type HttpBounds, HttpConnections } from "../../os/http_listener.ts";
import { ControlError, requestStatus } from "./control_client.ts";
import { jsonPieces } from "../cli/json_stream.ts";

/**
 * Answers one question. What it resolves to is sent as JSON, in pieces; a rejection with a
 * {@linkcode BadQuestion} says what is wrong with the question. `signal`: who asked has gone.
 */
type ControlRoute = (query: URLSearchParams, signal?: AbortSignal) => Promise<unknown>;

/** Questions by path, e.g. `/status`. */
export type ControlRoutes = Readonly<Record<`/${string}`, ControlRoute>>;

/**
 * Takes one message, any JSON. What it resolves to is the answer; a rejection with a
 * {@linkcode BadQuestion} says what is wrong with the message.
 */
type ControlMessage = (message: unknown) => Promise<unknown>;

/** Messages by path, e.g. `/repair`. */
export type ControlMessages = Readonly<Record<`/${string}`, ControlMessage>>;

/** What the socket serves. */
interface ControlServerOptions {
  readonly path: string;
  readonly routes: ControlRoutes;
  /** Sent by POST. @default {none} */
  readonly messages?: ControlMessages;
  /** @default {those of HttpConnections} */
  readonly bounds?: HttpBounds;
  readonly times?: Partial<HttpTimes>;
  /** Called for each connection that was refused, or closed for a new one. */
  readonly onRefused?: () => void;
  /** @default {SILENT_LOGGER} */
  readonly logger?: Logger;
}

/** A message says in a line what was done. */
const MOST_MESSAGE_BYTES = 4096;
/** The reader of a long answer may sleep: `kube-relay dump | less`, or Ctrl-Z. */
const PIECE_MS = 600_000;

/** The question itself is wrong: asking again would not help. */
export class BadQuestion extends Error {
  override name = "BadQuestion";
}

/** The open socket. */
export interface ControlServer {
  readonly path: string;
  stop(): Promise<void>;
}

/**
 * Opens the socket, for its owner only. One that a dead process left is replaced; one that answers is
 * not: throws a ControlError that names the process behind it.
 */
export async function startControlServer(
  { path, routes, messages = {}, times, logger = SILENT_LOGGER, ...rest }: ControlServerOptions,
): Promise<ControlServer> {
  await makeFolder(dirname(path));
  await removeStaleSocket(path);
  const connections = new HttpConnections({ clock: systemClock, logger }, {
    ...rest,
    name: "control",
    times: { pieceMs: PIECE_MS, ...times },
  });
  const listener = connections.serve(
    Deno.listen({ transport: "unix", path }),
    (request) => answer(request, { routes, messages }),
  );
  await Deno.chmod(path, 0o600);
  return {
    path,
    async stop() {
      // Answers are not waited for: whoever asked may be asleep (Ctrl-Z).
      await listener.close();
      await Deno.remove(path).catch(() => {});
    },
  };
}

async function answer(
  request: Request,
  { routes, messages }: Required<Pick<ControlServerOptions, "routes" | "messages">>,
): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  const route = new Map(Object.entries(routes)).get(pathname);
  const message = new Map(Object.entries(messages)).get(pathname);
  const method = message ? "POST" : "GET";
  if (request.method !== method) {
    return new Response(`Only ${method} is answered\n`, {
      status: 405,
      headers: { allow: method },
    });
  }
  if (!route && !message) return new Response("Not found\n", { status: 404 });
  try {
    const report =
      await (message ? message(await readMessage(request)) : route?.(searchParams, request.signal));
    const body = ReadableStream.from(jsonPieces(report)).pipeThrough(new TextEncoderStream());
    return new Response(body, {
      headers: { "content-type": "application/json", "transfer-encoding": "chunked" },
    });
  } catch (error) {
    const reason = messageOf(error);
    if (error instanceof BadQuestion) return new Response(`${reason}\n`, { status: 400 });
    return new Response(`Cannot answer ${pathname}: ${reason}\n`, { status: 500 });
  }
}

/** The JSON of a body. Throws a BadQuestion where it is none, or too long. */
async function readMessage(request: Request): Promise<unknown> {
  const bytes = await request.bytes();
  if (bytes.length > MOST_MESSAGE_BYTES) {
    throw new BadQuestion(`A message may have ${MOST_MESSAGE_BYTES} bytes at most`);
  }
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw new BadQuestion("The message is no JSON");
  }
}

/** Makes the folder 0700 when it is not there; one that is there keeps its mode. */
async function makeFolder(folder: string): Promise<void> {
  try {
    await Deno.mkdir(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new ControlError(
      `Cannot make the folder '${folder}' of the control socket: ${messageOf(error)}; ` +
        "give another path with --control-socket",
      { cause: error },
    );
  }
}

async function removeStaleSocket(path: string): Promise<void> {
  const info = await Deno.lstat(path).catch(() => undefined);
  if (!info) return;
  if (!info.isSocket) {
    throw new ControlError(
      `Cannot open the control socket '${path}': a file that is no socket is in its place; ` +
        "remove it or name another place with --control-socket",
    );
  }
  const other = await requestStatus(path).catch((error: unknown) => {
    if (error instanceof ControlError && error.kind === "not-running") return undefined;
    throw error;
  });
  if (other) {
    throw new ControlError(
      `Cannot open the control socket '${path}': kube-relay with process id ${other.pid} runs ` +
        "already; stop it, or give another path with --control-socket",
    );
  }
  await Deno.remove(path);
}
