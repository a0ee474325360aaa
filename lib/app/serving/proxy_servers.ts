import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { effectiveFlagTexts } from "../../config/effective_flags.ts";
import { encodeConfiguration } from "../../config/encode_configuration.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import {
  HEALTHZ_PORT,
  type ListenAddress,
  METRICS_PORT,
  tryParseListenAddress,
} from "../../config/listen_address.ts";
import { KUBE_PROXY_RELEASE, VERSION } from "../../config/version.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import { createHealthzHandler } from "../../health/healthz_server.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import { type EventSink, nodeRegarding } from "../../kube/event.ts";
import type { AdjustableLogger, Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { createMetricsHandler } from "../../metrics/metrics_server.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { MetricsAnswer } from "../../metrics/scrape.ts";
import type { Clock } from "../../os/clock.ts";
import type { HttpHandler } from "../../os/http_connection.ts";
import { type AddressHandover, runHttpServer } from "../../os/http_server.ts";
import type { Network } from "../../os/network.ts";
import { OpenFiles } from "../../os/open_files.ts";
import type { CurrentConfiguration, RunConfiguration } from "../dependencies.ts";
import type { LocalPages } from "../run/run_tools.ts";
import { type ServiceManager, SERVING } from "../run/service_manager.ts";

export interface ProxyServersDependencies {
  readonly clock: Clock;
  readonly logger: Logger & Pick<AdjustableLogger, "setVerbosity">;
  readonly network: Network;
  readonly events: EventSink;
  readonly openFiles: OpenFiles;
}

export interface ProxyServersOptions {
  readonly configuration: Pick<RunConfiguration, "proxy" | "relay" | "mode" | "flags">;
  /** The current configuration, for `/configz` and `/flagz`. @default {the one of the start} */
  readonly current?: CurrentConfiguration;
  readonly nodeName: string;
  readonly health: ProxyHealth;
  readonly metrics: ProxyMetrics;
  /** The handover of the ports by a kube-proxy. @default {none} */
  readonly handover?: AddressHandover;
  readonly manager: Pick<ServiceManager, "phase">;
  /** Pages on the metrics port for clients on this machine. @default {none} */
  readonly localPages?: LocalPages | undefined;
  /** Sets the metrics that are only collected for a scrape. */
  readonly gather: () => Promise<void>;
}

/** Starts the health and the metrics server of every kube-proxy as tasks. */
export function startProxyServers(
  { events, openFiles, ...edges }: ProxyServersDependencies,
  tasks: TaskGroup,
  options: ProxyServersOptions,
): void {
  const { configuration, handover, health, localPages, manager, metrics, nodeName } = options;
  const { proxy } = configuration;
  /** `reason`: that of kube-proxy's event if the server cannot listen. */
  const run = (
    name: "healthz" | "metrics",
    address: ListenAddress | undefined,
    handler: HttpHandler,
    reason: string,
  ) => {
    if (address === undefined) return;
    tasks.run(name, async (signal) => {
      try {
        await runHttpServer(edges, {
          ...{ name, address, handler, signal },
          hardFail: proxy.bindAddressHardFail,
          ...(handover && { handover }),
          bounds: openFiles.httpBounds,
          onRefused: () => openFiles.countRefused(name),
        });
      } catch (error) {
        const [note, regarding] = [messageOf(error), nodeRegarding(nodeName)];
        events.record({ type: "Warning", reason, action: "StartKubeProxy", note, regarding });
        throw error;
      }
    });
  };
  const answerHealth = createHealthzHandler({
    health,
    now: () => edges.clock.wallNow(),
    phase: () => manager.phase === SERVING ? undefined : manager.phase,
    onAnswer(path, code) {
      metrics.its[`kubeproxy_proxy_${path}_total`].inc({ code: String(code) });
    },
  });
  const answerMetrics = metricsHandler(edges, options);
  const addresses = serverAddresses(proxy);
  run("healthz", addresses.healthz, answerHealth, "FailedToStartProxierHealthcheck");
  run(
    "metrics",
    addresses.metrics,
    (request, peer) => localPages?.(request, peer) ?? answerMetrics(request, peer),
    "FailedToStartMetricServer",
  );
}

/** The addresses of both servers; `undefined` = it is turned off. */
function serverAddresses(
  { healthzBindAddress, metricsBindAddress }: Pick<
    KubeProxyConfiguration,
    "healthzBindAddress" | "metricsBindAddress"
  >,
) {
  return {
    healthz: tryParseListenAddress(healthzBindAddress, HEALTHZ_PORT),
    metrics: tryParseListenAddress(metricsBindAddress, METRICS_PORT),
  };
}

function metricsHandler(
  { clock, logger }: Pick<ProxyServersDependencies, "clock" | "logger">,
  { configuration, current = configuration, metrics, gather }: ProxyServersOptions,
): HttpHandler {
  const { proxy, mode, flags } = configuration;
  return createMetricsHandler({
    ...{ clock, startedAt: clock.wallNow(), mode },
    render: async () => {
      await gather();
      return await renderMetrics(metrics);
    },
    configuration: () => encodeConfiguration(current.proxy, mode),
    flags: featureEnabled(proxy, "ComponentFlagz")
      ? () => effectiveFlagTexts({ flags, configuration: { ...configuration, ...current } })
      : undefined,
    status: featureEnabled(proxy, "ComponentStatusz")
      ? { version: VERSION, release: KUBE_PROXY_RELEASE, runtime: `deno ${Deno.version.deno}` }
      : undefined,
    setVerbosity: proxy.enableProfiling ? (level) => logger.setVerbosity(level) : undefined,
  });
}

/** Renders all metrics. */
export async function renderMetrics(metrics: ProxyMetrics): Promise<MetricsAnswer> {
  const { contentType, body } = await metrics.render();
  const services = metrics.renderServices();
  if (services === undefined) return { contentType, body };
  const encoder = new TextEncoder();
  const pieces = [encoder.encode(body)];
  for await (const piece of services) pieces.push(encoder.encode(piece));
  return { contentType, body: pieces };
}

/**
 * Does the work while both ports answer that it goes on, and frees them at its end: a feature test may
 * wait half a minute for the lock of iptables, and a liveness probe that finds no open port meanwhile
 * would kill the process. Tries a port in use again, because a kube-proxy that is taken over may stop
 * meanwhile. Logs nothing: the later servers do.
 */
export async function answerWhile<Result>(
  { clock, network, openFiles = new OpenFiles() }: {
    readonly clock: Clock;
    readonly network: Network;
    /** @default {the limits of a usual process} */
    readonly openFiles?: OpenFiles;
  },
  { proxy, phase, signal }: {
    readonly proxy: Pick<KubeProxyConfiguration, "healthzBindAddress" | "metricsBindAddress">;
    /** As in `status`. */
    readonly phase: string;
    readonly signal: AbortSignal;
  },
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
  // Without a Node, `/healthz` keeps load balancers away while `/livez` succeeds.
  const answerHealth = createHealthzHandler({
    health: new ProxyHealth({ clock }, { timeoutMs: Infinity }),
    now: () => clock.wallNow(),
    phase: () => phase,
    onAnswer: () => {},
  });
  // The metrics have to wait: their names depend on the mode.
  const answerMetrics = (request: Request) => {
    const headers = { "content-type": "text/plain; charset=utf-8" };
    if (new URL(request.url).pathname === "/healthz") return new Response("ok", { headers });
    return new Response(`503 not yet: ${phase}\n`, { status: 503, headers });
  };
  const { healthz, metrics } = serverAddresses(proxy);
  const serving = Promise.all([
    serve("healthz", healthz, answerHealth),
    serve("metrics", metrics, answerMetrics),
  ]);
  try {
    return await work();
  } finally {
    ending.abort();
    await serving;
  }
}
