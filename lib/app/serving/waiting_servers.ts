/**
 * Serves the health and metrics ports while the mode is chosen. A feature test may wait half a minute for
 * the lock of iptables, and a liveness probe that finds no open port meanwhile would kill the process.
 */
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import {
  HEALTHZ_PORT,
  type ListenAddress,
  METRICS_PORT,
  tryParseListenAddress,
} from "../../config/listen_address.ts";
import { createHealthzHandler } from "../../health/healthz_server.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import type { Clock } from "../../os/clock.ts";
import type { HttpHandler } from "../../os/http_connection.ts";
import { runHttpServer } from "../../os/http_server.ts";
import type { Network } from "../../os/network.ts";
import { OpenFiles } from "../../os/open_files.ts";

interface WaitingDependencies {
  readonly clock: Clock;
  readonly network: Network;
  /** @default {the limits of a usual process} */
  readonly openFiles?: OpenFiles;
}

interface WaitingOptions {
  readonly proxy: Pick<KubeProxyConfiguration, "healthzBindAddress" | "metricsBindAddress">;
  /** As in `status`. */
  readonly phase: string;
  readonly signal: AbortSignal;
}

/**
 * Does the work while both ports answer, and frees them at its end. Tries a port in use again, because a
 * kube-proxy that is taken over may stop meanwhile. Logs nothing: the later servers do.
 */
export async function answerWhile<Result>(
  { clock, network, openFiles = new OpenFiles() }: WaitingDependencies,
  { proxy, phase, signal }: WaitingOptions,
  work: () => Promise<Result>,
): Promise<Result> {
  const bounds = openFiles.httpBounds;
  const ending = new AbortController();
  const until = AbortSignal.any([signal, ending.signal]);
  const serve = async (name: string, address: ListenAddress | undefined, handler: HttpHandler) => {
    if (address === undefined) return;
    const options = { name, address, handler, bounds, handover: { pending: true }, signal: until };
    await runHttpServer({ clock, network, logger: SILENT_LOGGER }, options);
  };
  const { healthzBindAddress, metricsBindAddress } = proxy;
  const serving = Promise.all([
    serve(
      "healthz",
      tryParseListenAddress(healthzBindAddress, HEALTHZ_PORT),
      healthzHandler({ clock }, phase),
    ),
    serve(
      "metrics",
      tryParseListenAddress(metricsBindAddress, METRICS_PORT),
      (request) => metricsAnswer(request, phase),
    ),
  ]);
  try {
    return await work();
  } finally {
    ending.abort();
    await serving;
  }
}

/** Without a Node, `/healthz` keeps load balancers away while `/livez` succeeds. */
function healthzHandler({ clock }: Pick<WaitingDependencies, "clock">, phase: string): HttpHandler {
  return createHealthzHandler({
    health: new ProxyHealth({ clock }, { timeoutMs: Infinity }),
    now: () => clock.wallNow(),
    phase: () => phase,
    onAnswer: () => {},
  });
}

/** The metrics have to wait: their names depend on the mode. */
function metricsAnswer(request: Request, phase: string): Response {
  const headers = { "content-type": "text/plain; charset=utf-8" };
  if (new URL(request.url).pathname === "/healthz") return new Response("ok", { headers });
  return new Response(`503 not yet: ${phase}\n`, { status: 503, headers });
}
