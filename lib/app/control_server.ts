/**
 * The local socket that `kube-relay status` and other verbs ask. Read only: nothing can be changed
 * through it.
 *
 * @module
 */
import { dirname } from "node:path";
import { messageOf } from "../log/message_of.ts";
import { ControlError, requestStatus } from "./control_client.ts";
import { jsonPieces } from "./json_stream.ts";

/**
 * Answers one question. What it resolves to is sent as JSON, in pieces; a rejection with a
 * {@linkcode BadQuestion} says what is wrong with the question.
 */
export type ControlRoute = (query: URLSearchParams) => Promise<unknown>;

/** Questions by path, e.g. `/status`. */
export type ControlRoutes = Readonly<Record<`/${string}`, ControlRoute>>;

/** What the socket serves. */
export interface ControlServerOptions {
  readonly path: string;
  readonly routes: ControlRoutes;
}

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
  { path, routes }: ControlServerOptions,
): Promise<ControlServer> {
  await makeFolder(dirname(path));
  await removeStaleSocket(path);
  const controller = new AbortController();
  const server = Deno.serve(
    { transport: "unix", path, signal: controller.signal, onListen: () => {} },
    (request) => answer(request, routes),
  );
  await Deno.chmod(path, 0o600);
  return {
    path,
    async stop() {
      // Not shutdown(): it waits for every answer to be read, and whoever asked may be asleep (Ctrl-Z).
      controller.abort();
      await server.finished;
      await Deno.remove(path).catch(() => {});
    },
  };
}

async function answer(request: Request, routes: ControlRoutes): Promise<Response> {
  if (request.method !== "GET") {
    return new Response("Only GET is answered\n", { status: 405, headers: { allow: "GET" } });
  }
  const { pathname, searchParams } = new URL(request.url);
  const route = new Map(Object.entries(routes)).get(pathname);
  if (!route) return new Response("Not found\n", { status: 404 });
  try {
    const report = await route(searchParams);
    const body = ReadableStream.from(jsonPieces(report)).pipeThrough(new TextEncoderStream());
    return new Response(body, { headers: { "content-type": "application/json" } });
  } catch (error) {
    const reason = messageOf(error);
    if (error instanceof BadQuestion) return new Response(`${reason}\n`, { status: 400 });
    return new Response(`Cannot answer ${pathname}: ${reason}\n`, { status: 500 });
  }
}

/** Makes the folder 0700 when it is not there; one that is there keeps its mode. */
async function makeFolder(folder: string): Promise<void> {
  try {
    await Deno.mkdir(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new ControlError(
      `Cannot make the folder '${folder}' of the control socket: ${messageOf(error)}; ` +
        "name another place with --control-socket",
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
        "already; stop it, or name another place with --control-socket",
    );
  }
  await Deno.remove(path);
}
