/**
 * The metrics of each Service, there with `--service-counters` only.
 *
 * @module
 */
import { FAMILY, type Metric } from "./metric.ts";

/** Labels of one port of a Service; `other` stands for all Services that have no series of their own. */
const SERVICE = {
  namespace: ["(namespace)"],
  service: ["(name)", "other"],
  port_name: ["(port)"],
  protocol: ["TCP", "UDP"],
  ...FAMILY,
} as const;

/** Rows by the name that the code has for each. */
export const SERVICE_METRICS = {
  bytesFromClients: {
    name: "kube_relay_service_received_bytes_total",
    type: "counter",
    help: "Bytes that clients sent through the Service",
    labels: SERVICE,
    modes: ["userspace"],
  },
  bytesToClients: {
    name: "kube_relay_service_sent_bytes_total",
    type: "counter",
    help: "Bytes that endpoints sent back through the Service",
    labels: SERVICE,
    modes: ["userspace"],
  },
  opened: {
    name: "kube_relay_service_connections_total",
    type: "counter",
    help: "TCP connections and UDP flows taken",
    labels: SERVICE,
    modes: ["userspace"],
  },
  open: {
    name: "kube_relay_service_open_connections",
    type: "gauge",
    help: "TCP connections and UDP flows that are open now",
    labels: SERVICE,
    modes: ["userspace"],
  },
} as const satisfies Readonly<Record<string, Metric>>;
