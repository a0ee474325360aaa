import { encodeConfiguration } from "../../config/encode_configuration.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import { HEALTHZ_PORT, METRICS_PORT, tryParseListenAddress } from "../../config/listen_address.ts";
import { createHealthzHandler } from "../../health/healthz_server.ts";
import type { ProxyHealth } from "../../health/proxy_health.ts";
import { type EventSink, nodeRegarding } from "../../kube/event.ts";
import type { AdjustableLogger, Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { createMetricsHandler } from "../../metrics/metrics_server.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { MetricsAnswer } from "../../metrics/scrape.ts";
import { createSliMetrics } from "../../metrics/sli_metrics.ts";
import type { Clock } from "../../os/clock.ts";
import type { HttpHandler } from "../../os/http_connection.ts";
import { type AddressHandover, runHttpServer } from "../../os/http_server.ts";
import type { Network } from "../../os/network.ts";
import type { OpenFiles } from "../../os/open_files.ts";
import { effectiveFlagTexts } from "../cli/effective_flags.ts";
import { KUBE_PROXY_RELEASE, VERSION } from "../cli/version.ts";
import type { CurrentConfiguration } from "../run/configuration_reload.ts";
import type { RunConfiguration } from "../run/run_configuration.ts";
import type { TaskGroup } from "../run/task_group.ts";
import type { LocalPages } from "../status/page/status_page.ts";

/** What the servers need. */
export interface ProxyServersDependencies {
  readonly clock: Clock;
  readonly logger: Logger & Pick<AdjustableLogger, "setVerbosity">;
  readonly network: Network;
  readonly events: EventSink;
  readonly openFiles: OpenFiles;
}

/** What the servers answer from. */
export interface ProxyServersOptions {
  readonly configuration: Pick<RunConfiguration, "proxy" | "relay" | "mode" | "flags">;
  /** What is in force now, for `/configz` and `/flagz`. @default that of {@linkcode configuration} */
  readonly current?: CurrentConfiguration;
  readonly nodeName: string;
  readonly health: ProxyHealth;
  readonly metrics: ProxyMetrics;
  /** Of the ports, from a kube-proxy that is taken over. @default {none} */
  readonly handover?: AddressHandover;
  /** What the process is doing while it does not serve. */
  readonly phase: () => string | undefined;
  /** Pages on the metrics port for who is on this machine. @default {none} */
  readonly localPages?: LocalPages;
  /** Brings the metrics up to date with what is only known when asked for. */
  readonly gather: () => Promise<void>;
}

/** One of the two. */
interface ProxyServer {
  readonly name: "healthz" | "metrics";
  /** Where it listens; empty = it is turned off. */
  readonly text: string;
  readonly port: number;
  readonly handler: HttpHandler;
  /** Reason of upstream's event when it can't listen. */
  readonly reason: string;
}

/** Starts both as tasks of the program. */
export function startProxyServers(
  dependencies: ProxyServersDependencies,
  tasks: TaskGroup,
  options: ProxyServersOptions,
): void {
  const { healthzBindAddress, metricsBindAddress } = options.configuration.proxy;
  const servers: readonly ProxyServer[] = [
    {
      name: "healthz",
      text: healthzBindAddress,
      port: HEALTHZ_PORT,
      handler: healthzHandler(dependencies, options),
      reason: "FailedToStartProxierHealthcheck",
    },
    {
      name: "metrics",
      text: metricsBindAddress,
      port: METRICS_PORT,
      handler: metricsHandler(dependencies, options),
      reason: "FailedToStartMetricServer",
    },
  ];
  for (const server of servers) {
    if (server.text === "") continue;
    tasks.run(server.name, (signal) => runServer(dependencies, server, { ...options, signal }));
  }
}

async function runServer(
  { events, openFiles, ...dependencies }: ProxyServersDependencies,
  { name, text, port, handler, reason }: ProxyServer,
  { configuration, handover, nodeName, signal }: ProxyServersOptions & {
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const address = tryParseListenAddress(text, port)!;
  const hardFail = configuration.proxy.bindAddressHardFail;
  try {
    await runHttpServer(dependencies, {
      name,
      address,
      handler,
      hardFail,
      ...(handover && { handover }),
      signal,
      bounds: openFiles.httpBounds,
      onRefused: () => openFiles.countRefused(name),
    });
  } catch (error) {
    events.record({
      type: "Warning",
      reason,
      action: "StartKubeProxy",
      note: messageOf(error),
      regarding: nodeRegarding(nodeName),
    });
    throw error;
  }
}

function healthzHandler(
  { clock }: ProxyServersDependencies,
  { health, metrics, phase }: ProxyServersOptions,
): HttpHandler {
  return createHealthzHandler({
    health,
    now: () => clock.wallNow(),
    phase,
    onAnswer: (path, code) => metrics.healthAnswered(path, code),
  });
}

function metricsHandler(
  { clock, logger }: ProxyServersDependencies,
  { configuration, current = configuration, localPages, metrics, gather }: ProxyServersOptions,
): HttpHandler {
  const { proxy, mode, flags } = configuration;
  const startedAt = clock.wallNow();
  const statusOf = () => ({
    startedAt,
    now: clock.wallNow(),
    version: VERSION,
    release: KUBE_PROXY_RELEASE,
    runtime: `deno ${Deno.version.deno}`,
  });
  const answerMetrics = createMetricsHandler({
    mode,
    render: async () => {
      await gather();
      return await renderMetrics(metrics);
    },
    slis: createSliMetrics({ startedAt }),
    configuration: () => encodeConfiguration(current.proxy, mode),
    flags: featureEnabled(proxy, "ComponentFlagz")
      ? () => effectiveFlagTexts({ flags, configuration: { ...configuration, ...current } })
      : undefined,
    status: featureEnabled(proxy, "ComponentStatusz") ? statusOf : undefined,
    setVerbosity: proxy.enableProfiling ? (level) => logger.setVerbosity(level) : undefined,
  });
  return (request, peer) => localPages?.(request, peer) ?? answerMetrics(request, peer);
}

/** Everything that the metrics have to say. */
export async function renderMetrics(metrics: ProxyMetrics): Promise<MetricsAnswer> {
  const { contentType, body } = await metrics.render();
  const services = metrics.renderServices();
  if (services === undefined) return { contentType, body };
  const encoder = new TextEncoder();
  const pieces = [encoder.encode(body)];
  for await (const piece of services) pieces.push(encoder.encode(piece));
  return { contentType, body: pieces };
}
