/**
 * Asks a running kube-relay over its control socket.
 *
 * @module
 */
import { systemClock } from "../os/clock.ts";
import type { StatusReport } from "./status_report.ts";

/** How long an answer may take. */
const TIMEOUT_MS = 5000;

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
  using client = Deno.createHttpClient({ proxy: { transport: "unix", path } });
  const controller = new AbortController();
  const timer = systemClock.setTimer(TIMEOUT_MS, () => controller.abort());
  let text: string;
  let ok: boolean;
  try {
    // The name is of no account: the connection goes to the socket.
    const { signal } = controller;
    const url = `http://localhost/status${brief ? "?brief" : ""}`;
    const response = await fetch(url, { client, signal });
    text = await response.text();
    ok = response.ok;
  } catch (error) {
    throw await explain(path, controller.signal.aborted ? "timeout" : error);
  } finally {
    timer.cancel();
  }
  if (!ok) throw new ControlError(`kube-relay at '${path}' says: ${text.trim()}`);
  return JSON.parse(text) as StatusReport;
}

/** fetch() says only that it failed; what is wrong is found by looking at the socket. */
async function explain(path: string, cause: unknown): Promise<ControlError> {
  if (cause === "timeout") {
    return new ControlError(
      `Cannot ask kube-relay at '${path}': no answer within ${TIMEOUT_MS / 1000} s`,
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
      `Cannot ask kube-relay at '${path}': nobody listens there; is it running? ` +
        "--control-socket names the socket of one that was started with that flag",
      { cause: error, kind: "not-running" },
    );
  }
}
