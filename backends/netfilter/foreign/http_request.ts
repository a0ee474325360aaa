import type { Clock } from "../../../lib/os/clock.ts";
import type { Network, SocketAddress, TcpConnection } from "../../../lib/os/network.ts";
import { formatHostPort } from "../../../lib/net/port.ts";

export interface HttpAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  /** The first 4 KiB. */
  readonly body: string;
}

interface HttpQuestion {
  readonly address: SocketAddress;
  readonly path: string;
  /** Gives up after so long. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
}

/** Most of an answer that is read. */
const MAX_ANSWER_BYTES = 8 * 1024;
const MAX_BODY_LENGTH = 4 * 1024;

/**
 * Sends a `GET` request. `undefined`: no listener, no answer in time, or not HTTP. Uses a plain
 * socket, since Deno's client would follow redirects and keep the connection.
 */
export async function requestHttp(
  { network, clock }: { readonly network: Network; readonly clock: Clock },
  { address, path, timeoutMs, signal }: HttpQuestion,
): Promise<HttpAnswer | undefined> {
  const controller = new AbortController();
  const giveUp = () => controller.abort();
  const timer = clock.setTimer(timeoutMs, giveUp);
  signal?.addEventListener("abort", giveUp, { once: true });
  if (signal?.aborted) giveUp();
  try {
    const connection = await network.connectTcp(address, controller.signal);
    return await converse(connection, { address, path, signal: controller.signal });
  } catch {
    // Refused, reset, or timed out.
    return undefined;
  } finally {
    timer.cancel();
    signal?.removeEventListener("abort", giveUp);
  }
}

async function converse(
  connection: TcpConnection,
  { address, path, signal }: Pick<HttpQuestion, "address" | "path"> & { signal: AbortSignal },
): Promise<HttpAnswer | undefined> {
  let open = true;
  const close = () => {
    if (open) connection.close();
    open = false;
  };
  signal.addEventListener("abort", close, { once: true });
  if (signal.aborted) close();
  try {
    // HTTP/1.0: the end of the connection is the end of the answer, which never comes in chunks.
    const host = formatHostPort(address.hostname, address.port);
    await writeAll(connection, `GET ${path} HTTP/1.0\r\nHost: ${host}\r\n\r\n`);
    return parseAnswer(await readText(connection));
  } finally {
    signal.removeEventListener("abort", close);
    close();
  }
}

async function writeAll(connection: TcpConnection, text: string): Promise<void> {
  let rest = new TextEncoder().encode(text);
  while (rest.length > 0) rest = rest.subarray(await connection.write(rest));
}

async function readText(connection: TcpConnection): Promise<string> {
  const buffer = new Uint8Array(MAX_ANSWER_BYTES);
  let length = 0;
  while (length < buffer.length) {
    const read = await connection.read(buffer.subarray(length));
    if (read === null) break;
    length += read;
  }
  return new TextDecoder().decode(buffer.subarray(0, length));
}

/** Parses an answer; undefined for other protocols. */
export function parseAnswer(text: string): HttpAnswer | undefined {
  const status = /^HTTP\/1\.[01] (\d{3})\b/.exec(text)?.[1];
  const end = text.indexOf("\r\n\r\n");
  if (status === undefined || end < 0) return undefined;
  const headers = new Map<string, string>();
  for (const line of text.slice(0, end).split("\r\n").slice(1)) {
    const colon = line.indexOf(":");
    if (colon > 0) headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
  }
  return { status: Number(status), headers, body: text.slice(end + 4, end + 4 + MAX_BODY_LENGTH) };
}
