import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { ProxyHealth } from "../../health/proxy_health.ts";
import {
  type ListenFailure,
  type ListenForService,
  ServiceHealthServer,
} from "../../health/service_health_server.ts";
import type { EventSink } from "../../kube/event.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { Clock } from "../../os/clock.ts";
import type { AddressHandover } from "../../os/http_server.ts";
import { HttpConnections } from "../../os/http_listener.ts";
import type { Network } from "../../os/network.ts";
import type { OpenFiles } from "../../os/open_files.ts";
import { probeWildcard } from "../../os/wildcard.ts";
import type { NamespacedName } from "../../proxy/service_port_name.ts";

interface ServiceHealthDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly network: Network;
  readonly openFiles: OpenFiles;
  readonly random: () => number;
  readonly events: EventSink;
  readonly metrics: Pick<ProxyMetrics, "healthBindFailed">;
}

interface ServiceHealthOptions {
  readonly configuration: Pick<KubeProxyConfiguration, "healthzBindAddress">;
  /** Whether node ports of a family are on every address. */
  readonly servesEverywhere: (family: IpFamily) => boolean;
  readonly health: ProxyHealth;
  /** Takes over ports from a kube-proxy. @default {none} */
  readonly handover?: AddressHandover;
  /** The UID of a Service, if the cluster provides it. */
  readonly uidOf: (service: NamespacedName) => string | undefined;
}

/** Creates the servers; they listen once a sync has a Service that needs it. */
export function createServiceHealth(
  { events, metrics, openFiles, ...dependencies }: ServiceHealthDependencies,
  { configuration, servesEverywhere, health, handover, uidOf }: ServiceHealthOptions,
): ServiceHealthServer {
  const { network } = dependencies;
  // A user who disabled the proxy's health check does not want it reported to load balancers.
  const ignoresProxy = configuration.healthzBindAddress === "";
  const listen = countedListen(dependencies, openFiles);
  return new ServiceHealthServer({ ...dependencies, listen }, {
    ...(handover && { handover }),
    everywhere: servesEverywhere,
    wildcard: () => probeWildcard(network),
    proxyHealthy: () => ignoresProxy || health.healthy(),
    onListenFailure: (failure) => {
      metrics.healthBindFailed();
      recordFailure(events, failure, uidOf(failure.service));
    },
  });
}

/** All sockets share one bound of connections. */
function countedListen(
  { clock, logger, network }: Pick<ServiceHealthDependencies, "clock" | "logger" | "network">,
  openFiles: OpenFiles,
): ListenForService {
  const name = "service_health";
  const connections = new HttpConnections({ clock, logger }, {
    name,
    bounds: openFiles.httpBounds,
    onRefused: () => openFiles.countRefused(name),
  });
  return (service, address, handler) => {
    const refusal = openFiles.takeListener(service);
    if (refusal !== undefined) throw new Error(refusal);
    try {
      const listener = connections.serve(network.listenTcp(address), handler);
      void listener.finished.then(() => openFiles.giveListener(service));
      return listener;
    } catch (error) {
      openFiles.giveListener(service);
      throw error;
    }
  };
}

/** Upstream's event, with the UID, by which `kubectl describe service` selects events. */
function recordFailure(
  events: EventSink,
  { service, port, error }: ListenFailure,
  uid: string | undefined,
): void {
  events.record({
    type: "Warning",
    reason: "FailedToStartServiceHealthcheck",
    action: "Listen",
    note: `Cannot listen on health check node port ${port}: ${error.message}`,
    regarding: { apiVersion: "v1", kind: "Service", ...service, ...(uid !== undefined && { uid }) },
  });
}
