/**
 * Serves the health and metrics ports while the mode is chosen. A feature test may wait half a minute for
 * the lock of iptables, and a liveness probe that finds no open port meanwhile would kill the process.
 */
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "../../config/listen_address.ts";
import { createHealthzHandler } from "../../health/healthz_server.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import type { Clock } from "../../os/clock.ts";
import type { HttpHandler } from "../../os/http_connection.ts";
import { runHttpServer } from "../../os/http_server.ts";
import type { Network } from "../../os/network.ts";
import { OpenFiles } from "../../os/open_files.ts";

/** What waiting needs. */
interface WaitingDependencies {
  readonly clock: Clock;
  readonly network: Network;
  /** @default {those of a usual limit} */
  readonly openFiles?: OpenFiles;
}

/** Where to answer, and what. */
interface WaitingOptions {
  readonly proxy: Pick<KubeProxyConfiguration, "healthzBindAddress" | "metricsBindAddress">;
  /** What is being done, in the words of `status`. */
  readonly phase: string;
  readonly signal: AbortSignal;
}

/**
 * Does the work while both ports answer; they are free again when it has ended. A port that is in use
 * is tried again, because a kube-proxy that is taken over may end meanwhile. Nothing is logged about it:
 * the servers that come after do so, and decide whether it ends the program.
 */
export async function answerWhile<Result>(
  { clock, network, openFiles = new OpenFiles() }: WaitingDependencies,
  { proxy, phase, signal }: WaitingOptions,
  work: () => Promise<Result>,
): Promise<Result> {
  const bounds = openFiles.httpBounds;
  const ending = new AbortController();
  const until = AbortSignal.any([signal, ending.signal]);
  const serve = (name: string, text: string, { port, handler }: WaitingPort) => {
    const address = text === "" ? undefined : tryParseListenAddress(text, port);
    if (address === undefined) return Promise.resolve();
    const options = { name, address, handler, bounds, handover: { pending: true }, signal: until };
    return runHttpServer({ clock, network, logger: SILENT_LOGGER }, options);
  };
  const serving = Promise.all([
    serve("healthz", proxy.healthzBindAddress, {
      port: HEALTHZ_PORT,
      handler: healthzHandler({ clock }, phase),
    }),
    serve("metrics", proxy.metricsBindAddress, {
      port: METRICS_PORT,
      handler: (request) => metricsAnswer(request, phase),
    }),
  ]);
  try {
    return await work();
  } finally {
    ending.abort();
    await serving;
  }
}

interface WaitingPort {
  readonly port: number;
  readonly handler: HttpHandler;
}

/** No Node has been seen: `/healthz` keeps load balancers away, `/livez` is content. */
function healthzHandler({ clock }: Pick<WaitingDependencies, "clock">, phase: string): HttpHandler {
  return createHealthzHandler({
    health: new ProxyHealth({ clock }, { timeoutMs: Infinity }),
    now: () => clock.wallNow(),
    phase: () => phase,
    onAnswer: () => {},
  });
}

/** The names of the metrics depend on the mode. */
function metricsAnswer(request: Request, phase: string): Response {
  const headers = { "content-type": "text/plain; charset=utf-8" };
  if (new URL(request.url).pathname === "/healthz") return new Response("ok", { headers });
  return new Response(`503 not yet: ${phase}\n`, { status: 503, headers });
}
