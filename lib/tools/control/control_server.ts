import { dirname, join } from "node:path";
import { ConfigurationError } from "../../config/configuration_error.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { systemClock } from "../../os/clock.ts";
import type { HttpTimes } from "../../os/http_connection.ts";
import { type HttpBounds, HttpConnections } from "../../os/http_server.ts";
import { askControl, ControlError } from "./control_client.ts";
import { type RoutePath, ROUTES, type Routes } from "./routes.ts";
import { jsonPieces } from "../cli/json_stream.ts";

/** The reader of a long answer may pause: `kube-relay dump | less`, or Ctrl-Z. */
const PIECE_MS = 600_000;

/** The request itself is wrong: a retry would not help. Routes reject with it. */
export class BadQuestion extends Error {
  override name = "BadQuestion";
}

/**
 * Opens the control socket, for its owner only. Replaces the socket of a dead process. Throws a ControlError
 * that names the process if one answers.
 */
export async function startControlServer(
  { path, routes, times, logger = SILENT_LOGGER, ...rest }: {
    readonly path: string;
    readonly routes: Partial<Routes>;
    /** @default {those of HttpConnections} */
    readonly bounds?: HttpBounds;
    readonly times?: Partial<HttpTimes>;
    /** Called for each connection that is refused, or closed for a new one. */
    readonly onRefused?: () => void;
    readonly logger?: Logger;
  },
): Promise<{ stop(): Promise<void> }> {
  const folder = dirname(path);
  try {
    // An existing one keeps its mode.
    await Deno.mkdir(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new ControlError(
      `Cannot create the folder '${folder}' of the control socket: ${messageOf(error)}; ` +
        "give another path with --control-socket",
      { cause: error },
    );
  }
  await checkPlace(path);
  const connections = new HttpConnections({ clock: systemClock, logger }, {
    ...rest,
    name: "control",
    times: { pieceMs: PIECE_MS, ...times },
  });
  const socket = await listen(path);
  const identity = await identityOf(path);
  const owner = (await Deno.lstat(path)).uid;
  const listener = connections.serve(
    socket,
    (request) => answer(request, routes, () => isOwners(path, owner)),
  );
  return {
    async stop() {
      // Does not wait for answers: a client may be suspended (Ctrl-Z).
      await listener.close();
      // Another program may have removed the socket and made its own file there.
      if (await identityOf(path) === identity) await Deno.remove(path).catch(() => {});
    },
  };
}

/**
 * Listens on a socket that has its name once its mode is right, in place of a former socket. Deno
 * removes whatever has the first name when the socket closes, even another program's file.
 */
async function listen(path: string): Promise<Deno.UnixListener> {
  const firstName = join(dirname(path), `.${Deno.pid}`);
  await Deno.remove(firstName).catch(() => {});
  const socket = Deno.listen({ transport: "unix", path: firstName });
  try {
    await Deno.chmod(firstName, 0o600);
    await Deno.rename(firstName, path);
  } catch (error) {
    socket.close();
    throw error;
  }
  return socket;
}

/** Distinguishes a file from a later one of the same name. */
async function identityOf(path: string): Promise<string | undefined> {
  const info = await Deno.lstat(path).catch(() => undefined);
  // A file system may give the number of a removed file to the next one.
  return info && [info.dev, info.ino, info.isSocket, info.birthtime?.getTime()].join(":");
}

/**
 * Whether only the user that opened the socket may connect to it, besides root. An administrator may have
 * permitted others to ask, which does not permit them to change anything.
 */
async function isOwners(path: string, owner: number | null): Promise<boolean> {
  const { mode, uid } = await Deno.lstat(path);
  return uid === owner && mode !== null && (mode & 0o077) === 0;
}

async function answer(
  request: Request,
  routes: Partial<Routes>,
  isOwners: () => Promise<boolean>,
): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  const isGet = request.method === "GET";
  const path = isGet ? pathname : `${request.method} ${pathname}`;
  if (!isRoute(path, routes)) {
    if (isGet) return new Response("Not found\n", { status: 404 });
    const allow = isRoute(`POST ${pathname}`, routes) ? "GET, POST" : "GET";
    return new Response(`Only ${allow} is answered\n`, { status: 405, headers: { allow } });
  }
  try {
    if (!isGet && request.headers.has("origin")) {
      return new Response("Cannot have anything changed by a web page\n", { status: 403 });
    }
    if (!isGet && !await isOwners()) {
      const reason =
        "Cannot have anything changed over this socket: users other than its owner may open it; " +
        "restore its owner and its mode, 0600";
      return new Response(`${reason}\n`, { status: 403 });
    }
    const parameters: readonly string[] = ROUTES[path].parameters;
    const unknown = [...searchParams.keys()].find((name) => !parameters.includes(name));
    if (unknown !== undefined) {
      throw new BadQuestion(
        `Cannot use the parameter '${unknown}': known are '${parameters.join("', '")}'`,
      );
    }
    const report = await routes[path]!(Object.fromEntries(searchParams), request.signal);
    const body = ReadableStream.from(jsonPieces(report)).pipeThrough(new TextEncoderStream());
    return new Response(body, {
      headers: { "content-type": "application/json", "transfer-encoding": "chunked" },
    });
  } catch (error) {
    const reason = messageOf(error);
    // What is wrong with the command line of the client, which exits as if it had found it.
    if (error instanceof ConfigurationError) return new Response(`${reason}\n`, { status: 422 });
    if (error instanceof BadQuestion) return new Response(`${reason}\n`, { status: 400 });
    return new Response(`Cannot answer ${pathname}: ${reason}\n`, { status: 500 });
  }
}

function isRoute(path: string, routes: Partial<Routes>): path is RoutePath {
  return Object.hasOwn(routes, path);
}

/** Throws a ControlError if another program uses the path. */
async function checkPlace(path: string): Promise<void> {
  const info = await Deno.lstat(path).catch(() => undefined);
  if (!info) return;
  if (!info.isSocket) {
    throw new ControlError(
      `Cannot open the control socket '${path}': the file there is no socket; ` +
        "remove it or name another place with --control-socket",
    );
  }
  const other = await askControl(path, "/status").catch((error: unknown) => {
    if (error instanceof ControlError && error.kind === "not-running") return undefined;
    throw error;
  });
  if (other) {
    throw new ControlError(
      `Cannot open the control socket '${path}': kube-relay with process id ${other.pid} is already ` +
        "running; stop it, or give another path with --control-socket",
    );
  }
}
