/**
 * The metrics of each Service, only with `--service-counters`.
 *
 * @module
 */
import { FAMILY, FORWARDING_MODES, type Metric } from "./metric.ts";

/**
 * Labels of one port of a Service; `other` stands for all Services without a series of their own.
 */
const SERVICE = {
  namespace: ["(namespace)"],
  service: ["(name)", "other"],
  port_name: ["(port)"],
  protocol: ["TCP", "UDP", "SCTP"],
  ...FAMILY,
} as const;

/** Rows by their name in the code. */
export const SERVICE_METRICS = {
  bytesFromClients: {
    name: "kube_relay_service_received_bytes_total",
    type: "counter",
    help: "Bytes that clients sent to the Service; in nftables mode including IP headers",
    labels: SERVICE,
    modes: [...FORWARDING_MODES, "nftables"],
  },
  bytesToClients: {
    name: "kube_relay_service_sent_bytes_total",
    type: "counter",
    help: "Bytes that endpoints sent back; in nftables mode including IP headers",
    labels: SERVICE,
    modes: [...FORWARDING_MODES, "nftables"],
  },
  packetsFromClients: {
    name: "kube_relay_service_received_packets_total",
    type: "counter",
    help: "Packets that clients sent to the Service; merged packets (GRO) count as one",
    labels: SERVICE,
    modes: ["nftables"],
  },
  packetsToClients: {
    name: "kube_relay_service_sent_packets_total",
    type: "counter",
    help: "Packets that endpoints sent back; merged packets (GRO) count as one",
    labels: SERVICE,
    modes: ["nftables"],
  },
  opened: {
    name: "kube_relay_service_connections_total",
    type: "counter",
    help: "TCP connections and UDP flows accepted",
    labels: SERVICE,
    modes: FORWARDING_MODES,
  },
  open: {
    name: "kube_relay_service_open_connections",
    type: "gauge",
    help: "Open TCP connections and UDP flows",
    labels: SERVICE,
    modes: FORWARDING_MODES,
  },
  healthyEndpoints: {
    name: "kube_relay_service_healthy_endpoints",
    type: "gauge",
    help:
      "Endpoints that are neither unhealthy nor ejected; only of Services with settings for health",
    labels: SERVICE,
    modes: FORWARDING_MODES,
  },
  unhealthyEndpoints: {
    name: "kube_relay_service_unhealthy_endpoints",
    type: "gauge",
    help: "Endpoints that fail their health checks",
    labels: SERVICE,
    modes: FORWARDING_MODES,
  },
  ejectedEndpoints: {
    name: "kube_relay_service_ejected_endpoints",
    type: "gauge",
    help: "Endpoints that are ejected because connections to them failed",
    labels: SERVICE,
    modes: FORWARDING_MODES,
  },
} as const satisfies Readonly<Record<string, Metric>>;
