/**
 * Finds a kube-proxy that runs on this machine now. Only its ports show that: a killed kube-proxy
 * leaves the same canary chains, tables and devices as a running one. Every user of the machine can
 * listen on these ports, so the listening socket has to belong to root or to kube-relay's own user.
 *
 * @module
 */
import type { Clock } from "../../../lib/os/clock.ts";
import { SERVER_NAME } from "../../../lib/os/http_output.ts";
import type { Network } from "../../../lib/os/network.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import {
  parseWaitingSockets,
  SOCKET_FILES,
  type WaitingSocket,
} from "../../../lib/os/kernel_sockets.ts";
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import { formatHostPort } from "../../../lib/net/port.ts";
import { type HttpAnswer, requestHttp } from "./http_request.ts";

/** The answers on kube-proxy's ports. */
interface KubeProxyAnswers {
  /** A kube-proxy that runs; absent if none answers. */
  readonly live?: LiveKubeProxy;
  /** Answers like kube-proxy's from programs of other users, one line each. */
  readonly impostors: readonly string[];
}

/** A kube-proxy that answered. */
export interface LiveKubeProxy {
  /** What it says of itself at `/proxyMode`, where it was asked there. */
  readonly mode?: string;
  /** What answered where, one line each. */
  readonly evidence: readonly string[];
}

/**
 * Longest time that the whole question takes. A closed port on loopback answers at once, so it counts
 * only where somebody listens; a kube-proxy that lacks CPU, as nodes do at boot, needs seconds.
 */
const TIMEOUT_MS = 3_000;
/** kube-proxy's default ports; what else answers elsewhere is none of its. */
const QUESTIONS = [
  { port: 10249, path: "/proxyMode" },
  { port: 10256, path: "/healthz" },
];
/** A node of IPv6 alone has its kube-proxy on `::1` (k3s says so by flag). */
const LOOPBACKS = ["127.0.0.1", "::1"];
const MODES = ["iptables", "ipvs", "nftables", "userspace", "kernelspace"];

/** What asking needs. */
interface LiveKubeProxyEdges {
  readonly network: Network;
  readonly clock: Clock;
  readonly commands: CommandRunner;
  /** The user of this process; `undefined` = unknown. */
  readonly uid: number | undefined;
}

/** Asks kube-proxy's default ports on loopback. */
export async function findLiveKubeProxy(
  edges: LiveKubeProxyEdges,
  options: { readonly signal?: AbortSignal } = {},
): Promise<KubeProxyAnswers> {
  const questions = LOOPBACKS.flatMap((hostname) =>
    QUESTIONS.map(({ port, path }) => ({ address: { hostname, port }, path }))
  );
  const answers = await Promise.all(
    questions.map((question) =>
      requestHttp(edges, { ...question, ...options, timeoutMs: TIMEOUT_MS })
    ),
  );
  const evidence: string[] = [];
  const impostors: string[] = [];
  let mode: string | undefined;
  for (const [index, { address, path }] of questions.entries()) {
    const said = kubeProxyAnswer(path, answers[index]);
    if (said === undefined) continue;
    const line = `${formatHostPort(address.hostname, address.port)}${path} says ${said}`;
    const owner = await ownerOf(edges, { ...address, ...options });
    if (owner !== undefined && owner !== 0 && owner !== edges.uid) {
      impostors.push(`${line}, from a program of user ${owner}`);
      continue;
    }
    if (path === "/proxyMode") mode ??= said;
    evidence.push(line);
  }
  const live = { evidence, ...(mode !== undefined && { mode }) };
  return { impostors, ...(evidence.length > 0 && { live }) };
}

/** The user of the socket that a connection to an address reaches; `undefined` = the kernel does not say. */
async function ownerOf(
  { commands }: LiveKubeProxyEdges,
  { hostname, port, signal }: {
    readonly hostname: string;
    readonly port: number;
    readonly signal?: AbortSignal;
  },
): Promise<number | undefined> {
  const sockets: WaitingSocket[] = [];
  for (const family of IP_FAMILIES) {
    const { code, stdout } = await commands.run(
      "cat",
      [SOCKET_FILES[family].TCP],
      signal ? { signal } : {},
    ).catch(() => ({ code: 1, stdout: "" }));
    if (code === 0) sockets.push(...parseWaitingSockets(stdout, "TCP"));
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
 * What is in an answer that only kube-proxy gives, or something that takes its place and its ports, as
 * Cilium does; undefined for any other, our own too.
 */
export function kubeProxyAnswer(path: string, answer: HttpAnswer | undefined): string | undefined {
  if (answer === undefined || answer.headers.get("server") === SERVER_NAME) return undefined;
  const body = answer.body.trim();
  if (path === "/proxyMode") {
    return answer.status === 200 && MODES.includes(body) ? body : undefined;
  }
  const shaped = body.startsWith("{") && body.includes('"lastUpdated":') &&
    body.includes('"currentTime":');
  return shaped && [200, 503].includes(answer.status)
    ? `lastUpdated (${answer.status})`
    : undefined;
}
