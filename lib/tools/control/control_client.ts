import { ConfigurationError } from "../../config/configuration_error.ts";
import { printableText } from "../../log/printable_text.ts";
import { systemClock } from "../../os/clock.ts";
import { type Answer, type Query, type RoutePath, ROUTES } from "./routes.ts";

/** Most characters of an error that are printed. */
const LONGEST_REASON = 1000;
/** Bound of an answer. The longest one is a dump: 15 MB for 10,000 Services. */
const MOST_BYTES = 256 * 1024 * 1024;
/** Bound of an answer with an error. */
const MOST_ERROR_BYTES = 64 * 1024;

/** A running kube-relay could not be asked, or its socket could not be opened. */
export class ControlError extends Error {
  override name = "ControlError";
  /** `not-running`: no program listens on the socket. */
  readonly kind: "not-running" | "refused" | "failed";

  constructor(
    message: string,
    options: ErrorOptions & { readonly kind?: ControlError["kind"] } = {},
  ) {
    super(message, options);
    this.kind = options.kind ?? "failed";
  }
}

/** Asks the kube-relay behind a socket. Throws a ControlError that says what to do. */
export async function askControl<Path extends RoutePath>(
  socket: string,
  path: Path,
  query: Query<Path> = {},
): Promise<Answer<Path>> {
  const text = await askControlText(socket, path, query);
  try {
    const value: unknown = JSON.parse(text);
    const fields = new Map<string, unknown>(Object.entries(value as object));
    const isAnswer = typeof value === "object" &&
      ROUTES[path].lists.every((name) => Array.isArray(fields.get(name)));
    if (isAnswer) return value as Answer<Path>;
  } catch {
    // It is no JSON, or null.
  }
  throw new ControlError(
    `Cannot ask kube-relay at '${socket}': the program that answers '${path}' there is not ` +
      "kube-relay, or is one of another release",
  );
}

/** As {@linkcode askControl}, but resolves to the text of the answer. */
export async function askControlText<Path extends RoutePath>(
  path: string,
  route: Path,
  query: Query<Path> = {},
): Promise<string> {
  const { timeoutMs } = ROUTES[route];
  const [place = "", method = "GET"] = route.split(" ").reverse();
  const given = Object.entries<string | undefined>(query)
    .flatMap(([name, value]) => value === undefined ? [] : [[name, value]]);
  using client = Deno.createHttpClient({ proxy: { transport: "unix", path } });
  const controller = new AbortController();
  const timer = systemClock.setTimer(timeoutMs, () => controller.abort());
  let text: string;
  let status: number;
  try {
    // The connection goes to the socket, but Deno looks up a name, which would wait for a dead resolver.
    const { signal } = controller;
    const response = await fetch(`http://127.0.0.1${place}?${new URLSearchParams(given)}`, {
      ...{ client, signal, method, redirect: "manual" },
      // A compressed answer could have any size after decompression.
      headers: { "accept-encoding": "identity" },
    });
    status = response.status;
    text = await readText(response, status === 200 ? MOST_BYTES : MOST_ERROR_BYTES);
  } catch (error) {
    throw await explain(path, controller.signal.aborted ? { timeoutMs } : { cause: error });
  } finally {
    timer.cancel();
  }
  if (status === 200) return text;
  const reason = status === 404 || status === 405
    ? "it does not know this request; it may be an older release"
    : printableText(text.trim().slice(0, LONGEST_REASON)) || `status ${status}`;
  if (status === 422) throw new ConfigurationError([reason]);
  throw new ControlError(`kube-relay at '${path}' says: ${reason}`);
}

/** Reads a body. Rejects with a RangeError if it is longer. */
async function readText({ body }: Response, mostBytes: number): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let total = 0;
  for await (const bytes of body ?? []) {
    total += bytes.length;
    if (total > mostBytes) throw new RangeError(`its answer has more than ${mostBytes} bytes`);
    text += decoder.decode(bytes, { stream: true });
  }
  return text + decoder.decode();
}

/** Finds the cause of a failed fetch(), which gives no reason, by connecting to the socket. */
async function explain(
  path: string,
  { timeoutMs, cause }: { readonly timeoutMs?: number; readonly cause?: unknown },
): Promise<ControlError> {
  if (timeoutMs !== undefined) {
    return new ControlError(
      `Cannot ask kube-relay at '${path}': no answer within ${timeoutMs / 1000} s`,
    );
  }
  try {
    const connection = await Deno.connect({ transport: "unix", path });
    connection.close();
    return new ControlError(`Cannot ask kube-relay at '${path}': ${String(cause)}`, { cause });
  } catch (error) {
    if (error instanceof Deno.errors.PermissionDenied || error instanceof Deno.errors.NotCapable) {
      return new ControlError(
        `Cannot ask kube-relay at '${path}': permission denied; use the user it runs as, or root`,
        { cause: error, kind: "refused" },
      );
    }
    return new ControlError(
      `Cannot ask kube-relay at '${path}': no program listens there; is it running? ` +
        "--control-socket names the socket of one that was started with that flag",
      { cause: error, kind: "not-running" },
    );
  }
}
