import { EDGE_ANNOTATIONS } from "../../../lib/api/service_annotations.ts";
import { formatDuration } from "../../../lib/api/duration.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { isOwnShortage, systemErrorOf } from "../../../lib/os/socket_errors.ts";
import { ConnectAttempt, type Engine, type EngineConnection } from "../engine.ts";
import { LOCAL_HEADERS } from "../proxy_protocol/proxy_header.ts";
import type { CheckTarget, HttpCheck } from "./health_settings.ts";

/** The result of one check. */
export type ProbeResult =
  | { readonly kind: "passed" }
  | { readonly kind: "failed" | "timeout"; readonly reason: string }
  /** It says nothing about the endpoint. */
  | { readonly kind: "unknown" };

/** The status line has to come within so many bytes; nothing after it is read. */
const MOST_BYTES = 1024;

const WORDS: Readonly<Record<string, string>> = {
  timeout: "no connection in time",
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset",
  EHOSTUNREACH: "no route to the host",
  ENETUNREACH: "the network is unreachable",
  ENOENT: "the Unix socket does not exist",
};

/** Describes the failure of an attempt to connect, such as `ECONNREFUSED`. */
export function failureText(failure: string): string {
  return WORDS[failure] ?? failure;
}

class ProbeAttempt extends ConnectAttempt {
  readonly done = Promise.withResolvers<EngineConnection>();

  override onConnected(connection: EngineConnection): void {
    this.done.resolve(connection);
  }

  override onFailed(error: unknown): void {
    this.done.reject(error);
  }
}

/** Checks an endpoint once. Fails when the signal is aborted. Does not reject. */
export async function probeEndpoint(
  engine: Pick<Engine, "connect">,
  target: CheckTarget,
  signal: AbortSignal,
): Promise<ProbeResult> {
  const within = `within ${formatDuration(target.timeoutMs)}`;
  let connection: EngineConnection;
  const attempt = new ProbeAttempt();
  const abandon = () => attempt.abandon();
  signal.addEventListener("abort", abandon, { once: true });
  if (signal.aborted) abandon();
  try {
    const { address: hostname, port, socket } = target;
    engine.connect({ hostname, port }, attempt, socket);
    connection = await attempt.done.promise;
  } catch (error) {
    if (signal.aborted) return { kind: "timeout", reason: `no connection ${within}` };
    if (isOwnShortage(error)) return { kind: "unknown" };
    const name = systemErrorOf(error);
    return { kind: "failed", reason: name ? failureText(name) : messageOf(error) };
  } finally {
    signal.removeEventListener("abort", abandon);
  }
  // A connection that was made too late is late.
  if (signal.aborted) {
    connection.close();
    return { kind: "timeout", reason: `no connection ${within}` };
  }
  if (target.http === undefined) {
    connection.close();
    return { kind: "passed" };
  }
  let isOpen = true;
  const close = () => {
    if (isOpen) connection.close();
    isOpen = false;
  };
  signal.addEventListener("abort", close, { once: true });
  try {
    return await request(connection, target.http);
  } catch (error) {
    if (signal.aborted) return { kind: "timeout", reason: `no answer ${within}` };
    const name = systemErrorOf(error);
    return { kind: "failed", reason: name ? failureText(name) : messageOf(error) };
  } finally {
    signal.removeEventListener("abort", close);
    close();
  }
}

async function request(connection: EngineConnection, check: HttpCheck): Promise<ProbeResult> {
  const { path, host, proxy } = check;
  const text = `GET ${path} HTTP/1.1\r\nHost: ${host}\r\nUser-Agent: kube-relay\r\n` +
    "Accept: */*\r\nConnection: close\r\n\r\n";
  const data = new TextEncoder().encode(text);
  await writeAll(connection, proxy ? new Uint8Array([...LOCAL_HEADERS[proxy], ...data]) : data);
  const line = await readStatusLine(connection);
  const [, number] = /^HTTP\/1\.[01] ([1-5]\d\d)(?: |\r?\n)/.exec(line) ?? [];
  if (number === undefined) {
    const reason = line === "" ? "closed without an answer" : "the answer is not HTTP/1";
    return { kind: "failed", reason };
  }
  const status = Number(number);
  if (check.statuses.some(({ from, to }) => from <= status && status <= to)) {
    return { kind: "passed" };
  }
  const wanted = EDGE_ANNOTATIONS.healthStatus.format(check.statuses);
  return { kind: "failed", reason: `${status} instead of ${wanted}` };
}

async function writeAll(connection: EngineConnection, data: Uint8Array): Promise<void> {
  for (let sent = 0; sent < data.length;) sent += await connection.write(data.subarray(sent));
}

/** Reads up to the first line feed. */
async function readStatusLine(connection: EngineConnection): Promise<string> {
  const buffer = new Uint8Array(MOST_BYTES);
  let length = 0;
  while (length < buffer.length && !buffer.subarray(0, length).includes(10)) {
    const count = await connection.read(buffer.subarray(length));
    if (count === null) break;
    length += count;
  }
  return new TextDecoder("latin1").decode(buffer.subarray(0, length));
}
