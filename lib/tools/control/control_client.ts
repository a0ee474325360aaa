import { ConfigurationError } from "../../config/load.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { systemClock } from "../../os/clock.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { NodeDifference } from "../diff/node_difference.ts";
import { printableText } from "../../log/printable_text.ts";
import type { StatusReport } from "../status/status_report.ts";

const TIMEOUT_MS = 5000;
/** The kernel takes seconds to list 44,000 Services, and longer on a busy machine. */
const DIFFERENCE_TIMEOUT_MS = 120_000;
/** Most characters of an error that are printed. */
const LONGEST_REASON = 1000;
/** Bound of an answer. The longest one is a dump: 15 MB for 10,000 Services. */
const MOST_BYTES = 256 * 1024 * 1024;
/** Bound of an answer with an error. */
const MOST_ERROR_BYTES = 64 * 1024;
/** Lists in the answers of this release: an answer without them is from another program. */
const LISTS: Readonly<Record<string, readonly string[]>> = {
  "/status": ["families", "sources", "hostSettings"],
  "/changes": ["entries", "syncs"],
  "/explain": ["packets", "assumptions"],
  "/difference": ["families"],
  "/policy/difference": ["families"],
};

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

/** Asks for the status; `brief` omits the Services. As all requests, throws a ControlError that says what to do. */
export async function requestStatus(
  path: string,
  { brief = false }: { readonly brief?: boolean } = {},
): Promise<StatusReport> {
  return await askControl(path, { route: `/status${brief ? "?brief" : ""}` }) as StatusReport;
}

/** Asks for the last changes, or for all that are kept. */
export async function requestChanges(path: string, last?: number): Promise<ChangesReport> {
  const route = `/changes${last === undefined ? "" : `?last=${last}`}` as const;
  return await askControl(path, { route }) as ChangesReport;
}

/**
 * Asks for the differences between the plans and the machine, for one family or one Service if named;
 * `repair` has the process write what differs. Rules of NetworkPolicies belong to no single Service.
 */
export async function requestDifference(
  path: string,
  { family, service, repair: changes = false }: {
    readonly family?: IpFamily | undefined;
    readonly service?: string | undefined;
    readonly repair?: boolean | undefined;
  },
): Promise<NodeDifference> {
  const query = new URLSearchParams({ ...(family && { family }), ...(service && { service }) });
  const ask = (route: `/${string}`) =>
    askControl(path, { route, changes, timeoutMs: DIFFERENCE_TIMEOUT_MS });
  const ofServices = await ask(`/difference?${query}`) as NodeDifference;
  if (service !== undefined) return ofServices;
  const { controllers = [] } = await requestStatus(path, { brief: true });
  if (!controllers.some(({ controller }) => controller === "network-policy")) return ofServices;
  const { families } = await ask(`/policy/difference?${query}`) as Pick<NodeDifference, "families">;
  return { ...ofServices, families: [...ofServices.families, ...families] };
}

interface ControlRequest {
  /** A path with its query. */
  readonly route: `/${string}`;
  /** Whether the request has something changed, which is a POST. @default {false} */
  readonly changes?: boolean;
  /** Longest time to the end of the answer, in milliseconds. @default {5000} */
  readonly timeoutMs?: number;
}

/** Sends one request to the kube-relay behind a socket. Resolves to the parsed JSON. */
export async function askControl(path: string, request: ControlRequest): Promise<object> {
  const text = await askControlText(path, request);
  const [route = ""] = request.route.split("?");
  return parseAnswer(text, LISTS[route] ?? []) ?? throwForeign(path, route);
}

function parseAnswer(text: string, lists: readonly string[]): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null) return undefined;
    const fields = new Map<string, unknown>(Object.entries(value));
    return lists.every((name) => Array.isArray(fields.get(name))) ? value : undefined;
  } catch {
    return undefined;
  }
}

function throwForeign(path: string, route: string): never {
  throw new ControlError(
    `Cannot ask kube-relay at '${path}': the program that answers '${route}' there is not ` +
      "kube-relay, or is one of another release",
  );
}

/** As {@linkcode askControl}, but resolves to the text of the answer. */
export async function askControlText(
  path: string,
  { route, changes = false, timeoutMs = TIMEOUT_MS }: ControlRequest,
): Promise<string> {
  using client = Deno.createHttpClient({ proxy: { transport: "unix", path } });
  const controller = new AbortController();
  const timer = systemClock.setTimer(timeoutMs, () => controller.abort());
  let text: string;
  let status: number;
  try {
    // The host name has no effect: the connection goes to the socket.
    const { signal } = controller;
    const response = await fetch(`http://localhost${route}`, {
      ...{ client, signal, redirect: "manual" },
      method: changes ? "POST" : "GET",
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
