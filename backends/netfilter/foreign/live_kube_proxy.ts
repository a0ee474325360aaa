/**
 * Whether a kube-proxy runs on this machine now. Only its ports tell: the canary chains, tables and
 * devices of a kube-proxy that has been killed are just as those of one that runs.
 *
 * @module
 */
import type { Clock } from "../../../lib/os/clock.ts";
import { SERVER_NAME } from "../../../lib/os/http_listener.ts";
import type { Network } from "../../../lib/os/network.ts";
import { formatHostPort } from "../../../lib/net/port.ts";
import { type HttpAnswer, peekHttp } from "./http_peek.ts";

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

/** Asks kube-proxy's default ports on loopback. `undefined`: no kube-proxy answers. */
export async function findLiveKubeProxy(
  edges: { readonly network: Network; readonly clock: Clock },
  options: { readonly signal?: AbortSignal } = {},
): Promise<LiveKubeProxy | undefined> {
  const questions = LOOPBACKS.flatMap((hostname) =>
    QUESTIONS.map(({ port, path }) => ({ address: { hostname, port }, path }))
  );
  const answers = await Promise.all(
    questions.map((question) =>
      peekHttp(edges, { ...question, ...options, timeoutMs: TIMEOUT_MS })
    ),
  );
  const evidence: string[] = [];
  let mode: string | undefined;
  for (const [index, { address, path }] of questions.entries()) {
    const said = kubeProxyAnswer(path, answers[index]);
    if (said === undefined) continue;
    if (path === "/proxyMode") mode ??= said;
    evidence.push(`${formatHostPort(address.hostname, address.port)}${path} says ${said}`);
  }
  if (evidence.length === 0) return undefined;
  return { evidence, ...(mode !== undefined && { mode }) };
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
