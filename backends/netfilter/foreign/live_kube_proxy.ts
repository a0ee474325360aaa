/**
 * Finds a running kube-proxy. Only its ports show that: a killed kube-proxy leaves the same canary
 * chains, tables and devices. Any user can listen on these ports, so the listening socket must
 * belong to root or to kube-relay's own user.
 *
 * @module
 */
import type { Clock } from "../../../lib/os/clock.ts";
import { SERVER_NAME } from "../../../lib/os/http_connection.ts";
import type { Network, SocketAddress } from "../../../lib/os/network.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import {
  parseWaitingSockets,
  SOCKET_FILES,
  type WaitingSocket,
} from "../../../lib/os/kernel_sockets.ts";
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import { formatHostPort } from "../../../lib/net/port.ts";

/**
 * Maximum time of the check. A closed port on loopback answers at once, so it only matters with a
 * listener; a kube-proxy that lacks CPU, as during boot, needs seconds.
 */
const TIMEOUT_MS = 3_000;
/** A connection without an answer in time. */
const SILENCE = `nothing within ${TIMEOUT_MS / 1000} s`;
/** Most of an answer that is read. */
const MAX_ANSWER_BYTES = 8 * 1024;
/** kube-proxy's default ports. Other ports are not kube-proxy's. */
const QUESTIONS = [
  { port: 10249, path: "/proxyMode" },
  { port: 10256, path: "/healthz" },
];
/** The kube-proxy of an IPv6-only node listens on `::1` (a flag that k3s sets). */
const LOOPBACKS = ["127.0.0.1", "::1"];
const MODES = ["iptables", "ipvs", "nftables", "userspace", "kernelspace"];

/**
 * Asks kube-proxy's default ports on loopback. `live`: a kube-proxy that runs, with its answers, one line
 * each, and that at `/proxyMode`, if that port answered. A program that takes connections without an
 * answer in time counts, because a kube-proxy that lacks CPU still writes rules. `impostors`: answers like kube-proxy's from
 * programs of other users. `uid`: the user of this process; `undefined` = unknown.
 */
export async function findLiveKubeProxy(
  edges: {
    readonly network: Network;
    readonly clock: Clock;
    readonly commands: CommandRunner;
    readonly uid: number | undefined;
  },
  options: { readonly signal?: AbortSignal } = {},
): Promise<{
  readonly live?: { readonly mode?: string; readonly evidence: readonly string[] };
  readonly impostors: readonly string[];
}> {
  const questions = LOOPBACKS.flatMap((hostname) =>
    QUESTIONS.map(({ port, path }) => ({ address: { hostname, port }, path }))
  );
  const late = new AbortController();
  const timer = edges.clock.setTimer(TIMEOUT_MS, () => late.abort());
  const signal = AbortSignal.any([late.signal, ...(options.signal ? [options.signal] : [])]);
  const answers = await Promise.all(
    questions.map(({ address, path }) => ask(edges.network, address, path, signal)),
  ).finally(() => timer.cancel());
  if (options.signal?.aborted) return { impostors: [] };
  const evidence: string[] = [];
  const impostors: string[] = [];
  let mode: string | undefined;
  for (const [index, { address, path }] of questions.entries()) {
    const answer = answers[index];
    const said = answer === undefined ? SILENCE : kubeProxyAnswer(path, answer);
    if (said === undefined) continue;
    const line = `${formatHostPort(address.hostname, address.port)}${path} says ${said}`;
    const owner = await ownerOf(edges.commands, address, options);
    if (owner !== undefined && owner !== 0 && owner !== edges.uid) {
      impostors.push(`${line}, from a program of user ${owner}`);
      continue;
    }
    if (path === "/proxyMode" && said !== SILENCE) mode ??= said;
    evidence.push(line);
  }
  const live = { evidence, ...(mode !== undefined && { mode }) };
  return { impostors, ...(evidence.length > 0 && { live }) };
}

/** Returns the user of the socket behind an address; `undefined` = unknown. */
async function ownerOf(
  commands: CommandRunner,
  { hostname, port }: SocketAddress,
  options: { readonly signal?: AbortSignal },
): Promise<number | undefined> {
  const sockets: WaitingSocket[] = [];
  for (const family of IP_FAMILIES) {
    const { code, stdout } = await commands.run("cat", [SOCKET_FILES[family].TCP], options)
      .catch(() => ({ code: 1, stdout: "" }));
    if (code !== 0) continue;
    for (const socket of parseWaitingSockets(stdout, "TCP")) sockets.push(socket);
  }
  // The kernel prefers the exact address; `::` also takes connections to IPv4 addresses.
  const wildcards = hostname.includes(":") ? ["::"] : ["0.0.0.0", "::"];
  for (const address of [hostname, ...wildcards]) {
    const found = sockets.find((each) => each.address === address && each.port === port);
    if (found) return found.uid;
  }
  return undefined;
}

/**
 * Returns the answer to a `GET` request, or its start; "" without a listener; `undefined` if a listener
 * has not answered when the signal is aborted. A connection that is not made in time is no listener:
 * a packet filter may drop it. Uses a plain socket, since Deno's client would follow redirects and keep
 * the connection.
 */
async function ask(
  network: Network,
  address: SocketAddress,
  path: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  let close = () => {};
  let isConnected = false;
  const giveUp = () => close();
  signal.addEventListener("abort", giveUp, { once: true });
  try {
    signal.throwIfAborted();
    const connection = await network.connectTcp(address, signal);
    isConnected = true;
    close = () => {
      close = () => {};
      connection.close();
    };
    if (signal.aborted) return undefined;
    // HTTP/1.0: the end of the connection is the end of the answer, which never comes in chunks.
    const host = formatHostPort(address.hostname, address.port);
    let rest = new TextEncoder().encode(`GET ${path} HTTP/1.0\r\nHost: ${host}\r\n\r\n`);
    while (rest.length > 0) rest = rest.subarray(await connection.write(rest));
    const buffer = new Uint8Array(MAX_ANSWER_BYTES);
    let length = 0;
    while (length < buffer.length) {
      const read = await connection.read(buffer.subarray(length));
      if (read === null) break;
      length += read;
    }
    return new TextDecoder().decode(buffer.subarray(0, length));
  } catch {
    return isConnected && signal.aborted ? undefined : "";
  } finally {
    signal.removeEventListener("abort", giveUp);
    close();
  }
}

/**
 * Returns evidence that only kube-proxy, or its replacement on the same ports such as Cilium,
 * gives; undefined for other programs, including kube-relay.
 */
export function kubeProxyAnswer(path: string, answer: string): string | undefined {
  const [, code, head = "", text = ""] =
    /^HTTP\/1\.[01] (\d{3})\b(.*?)\r\n\r\n(.*)$/s.exec(answer) ?? [];
  const server = /\r\nserver:(.*)/i.exec(head)?.[1]?.trim();
  if (code === undefined || server === SERVER_NAME) return undefined;
  const body = text.trim();
  if (path === "/proxyMode") return code === "200" && MODES.includes(body) ? body : undefined;
  const shaped = body.startsWith("{") && body.includes('"lastUpdated":') &&
    body.includes('"currentTime":');
  return shaped && ["200", "503"].includes(code) ? `lastUpdated (${code})` : undefined;
}
