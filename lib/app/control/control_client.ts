import type { IpFamily } from "../../net/ip_address.ts";
import { systemClock } from "../../os/clock.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { RepairNote } from "../changes/repair_note.ts";
import { answeredObject, answerText, mostText } from "./control_answer.ts";
import { answeredDifference } from "../diff/difference_answer.ts";
import type { NodeDifference } from "../diff/node_difference.ts";
import { printableText } from "../../log/printable_text.ts";
import type { StatusReport } from "../status/status_report.ts";

/** How long an answer may take. */
const TIMEOUT_MS = 5000;
/** The kernel takes a few seconds to list 44,000 Services, on a busy machine many. */
const DIFFERENCE_TIMEOUT_MS = 120_000;
/** Most characters that are shown of a reason. */
const LONGEST_REASON = 1000;
/** What reads the answers of this release looks for these; who answers without them is another. */
const LISTS: Readonly<Record<string, readonly string[]>> = {
  "/status": ["families", "sources", "hostSettings"],
  "/changes": ["entries", "syncs"],
  "/explain": ["packets", "assumptions"],
  "/difference": ["families"],
};

/** Why a running kube-relay could not be asked, or its socket not be opened. */
export class ControlError extends Error {
  override name = "ControlError";
  /** `not-running`: nobody listens there. */
  readonly kind: "not-running" | "refused" | "failed";

  constructor(
    message: string,
    options: ErrorOptions & { readonly kind?: ControlError["kind"] } = {},
  ) {
    super(message, options);
    this.kind = options.kind ?? "failed";
  }
}

/** Asks for the status; `brief` leaves the Services out. Throws a ControlError that says what to do. */
export async function requestStatus(
  path: string,
  { brief = false }: { readonly brief?: boolean } = {},
): Promise<StatusReport> {
  return await askControl(path, { route: `/status${brief ? "?brief" : ""}` }) as StatusReport;
}

/**
 * Asks for the last changes, as many as are wanted; `rules`: with the names of the rules that came of
 * them. Throws a ControlError that says what to do.
 */
export async function requestChanges(
  path: string,
  { last, rules = false }: { readonly last?: number; readonly rules?: boolean } = {},
): Promise<ChangesReport> {
  const query = [...(last === undefined ? [] : [`last=${last}`]), ...(rules ? ["rules"] : [])];
  return await askControl(path, { route: `/changes?${query.join("&")}` }) as ChangesReport;
}

/**
 * Has the process compare its machine with its plan; of one family or one Service where those are
 * named. Throws a ControlError that says what to do.
 */
export async function requestDifference(
  path: string,
  { family, service }: {
    readonly family?: IpFamily | undefined;
    readonly service?: string | undefined;
  },
): Promise<NodeDifference> {
  const query = new URLSearchParams({ ...(family && { family }), ...(service && { service }) });
  const answer = await askControl(path, {
    route: `/difference?${query}`,
    timeoutMs: DIFFERENCE_TIMEOUT_MS,
  });
  return answeredDifference(answer) ?? strange(path, "/difference");
}

/** Tells of a repair, for the change log. Throws a ControlError that says what to do. */
export async function tellRepair(path: string, message: RepairNote): Promise<void> {
  await askControl(path, { route: "/repair", message });
}

/** One question. */
interface ControlQuestion {
  /** A path with its query. */
  readonly route: `/${string}`;
  /** What is to be told, as JSON; left out = something is asked. */
  readonly message?: unknown;
  /** How long an answer may take, milliseconds. @default {5000} */
  readonly timeoutMs?: number;
}

/**
 * Asks the kube-relay behind a socket one question: a path with its query. Resolves to the parsed
 * JSON; throws a ControlError that says what to do.
 */
export async function askControl(path: string, question: ControlQuestion): Promise<object> {
  const text = await askControlText(path, question);
  const [route = ""] = question.route.split("?");
  const answer = answeredObject(text, LISTS[route] ?? []);
  return answer ?? strange(path, route);
}

function strange(path: string, route: string): never {
  throw new ControlError(
    `Cannot ask kube-relay at '${path}': what answers '${route}' there is no kube-relay, or one of ` +
      "another release",
  );
}

/** As {@linkcode askControl}, with the answer as it came. */
export async function askControlText(
  path: string,
  { route, message, timeoutMs = TIMEOUT_MS }: ControlQuestion,
): Promise<string> {
  using client = Deno.createHttpClient({ proxy: { transport: "unix", path } });
  const controller = new AbortController();
  const timer = systemClock.setTimer(timeoutMs, () => controller.abort());
  let text: string;
  let status: number;
  try {
    // The name is of no account: the connection goes to the socket.
    const { signal } = controller;
    const response = await fetch(`http://localhost${route}`, {
      ...{ client, signal, redirect: "manual" },
      ...(message !== undefined && { method: "POST", body: JSON.stringify(message) }),
      // What is compressed may be of any size, and nothing is gained by it here.
      headers: { "accept-encoding": "identity" },
    });
    text = await answerText(response, mostText(response.status));
    status = response.status;
  } catch (error) {
    throw await explain(path, controller.signal.aborted ? { timeoutMs } : { cause: error });
  } finally {
    timer.cancel();
  }
  if (status === 200) return text;
  const reason = status === 404 || status === 405
    ? "it knows nothing of this: it may be an older release"
    : printableText(text.trim().slice(0, LONGEST_REASON)) || `status ${status}`;
  throw new ControlError(`kube-relay at '${path}' says: ${reason}`);
}

/** fetch() says only that it failed; what is wrong is found by looking at the socket. */
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
        `Cannot ask kube-relay at '${path}': this user may not; ask as the user it runs as, or as root`,
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
