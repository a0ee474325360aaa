/**
 * The one table of metrics. Their instruments and docs/metrics.md are made from it.
 *
 * Names, types, labels and buckets of the `kubeproxy_` ones are kube-proxy's, so that its dashboards
 * and alerts go on working; what is ours begins with `kube_relay_`. Each label has a fixed set of
 * values: the number of series does not grow with the cluster.
 *
 * @module
 */

/** One row of the table. */
export interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  /** Meaning, as one sentence without a full stop. */
  readonly help: string;
  /** Labels, each with every value that it can have. */
  readonly labels?: Readonly<Record<string, readonly string[]>>;
  /** Upper bounds of a histogram's buckets, in seconds. */
  readonly buckets?: readonly number[];
}

const FAMILY = { ip_family: ["IPv4", "IPv6"] } as const;
const CODE = { code: ["200", "503"] } as const;
const RESOURCE = {
  resource: [
    "connection",
    "services",
    "endpointslices",
    "endpoints",
    "nodes",
    "servicecidrs",
    "other",
  ],
} as const;

/** 0.001 s doubling to 16.384 s. */
const SYNC_BUCKETS = Array.from({ length: 15 }, (_, index) => 0.001 * 2 ** index);

/** Upstream's buckets of the network programming latency: fine below a minute, coarse up to 5. */
const PROGRAMMING_BUCKETS = [
  0.25,
  0.5,
  ...Array.from({ length: 59 }, (_, index) => 1 + index),
  ...Array.from({ length: 12 }, (_, index) => 60 + 5 * index),
  ...Array.from({ length: 7 }, (_, index) => 120 + 30 * index),
];

/** Every metric, by the name that the code has for it. */
export const METRICS = {
  syncDuration: {
    name: "kubeproxy_sync_proxy_rules_duration_seconds",
    type: "histogram",
    help: "Time that each sync took, failed ones too",
    labels: FAMILY,
    buckets: SYNC_BUCKETS,
  },
  lastSynced: {
    name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    type: "gauge",
    help: "Unix time of the last sync that succeeded",
    labels: FAMILY,
  },
  lastQueued: {
    name: "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    type: "gauge",
    help: "Unix time at which a sync was last asked for",
    labels: FAMILY,
  },
  programmingDuration: {
    name: "kubeproxy_network_programming_duration_seconds",
    type: "histogram",
    help: "Time from a change of endpoints in the control plane until it was brought about here",
    labels: FAMILY,
    buckets: PROGRAMMING_BUCKETS,
  },
  endpointChangesPending: {
    name: "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    type: "gauge",
    help: "Changed endpoints that wait for a sync",
  },
  endpointChanges: {
    name: "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    type: "counter",
    help: "Changes of endpoints that were taken in",
  },
  serviceChangesPending: {
    name: "kubeproxy_sync_proxy_rules_service_changes_pending",
    type: "gauge",
    help: "Changed Services that wait for a sync",
  },
  serviceChanges: {
    name: "kubeproxy_sync_proxy_rules_service_changes_total",
    type: "counter",
    help: "Changes of Services that were taken in",
  },
  noLocalEndpoints: {
    name: "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    type: "gauge",
    help: "Service ports with traffic policy Local whose endpoints are all on other nodes",
    labels: { traffic_policy: ["internal", "external"], ...FAMILY },
  },
  healthzAnswers: {
    name: "kubeproxy_proxy_healthz_total",
    type: "counter",
    help: "Answers of /healthz",
    labels: CODE,
  },
  livezAnswers: {
    name: "kubeproxy_proxy_livez_total",
    type: "counter",
    help: "Answers of /livez",
    labels: CODE,
  },
  kubernetesBuildInfo: {
    name: "kubernetes_build_info",
    type: "gauge",
    help:
      "Always 1; the Kubernetes version that this program behaves like, and its own after the +",
    labels: { major: ["1"], minor: ["36"], git_version: ["(version)"], platform: ["(platform)"] },
  },
  buildInfo: {
    name: "kube_relay_build_info",
    type: "gauge",
    help: "Always 1; version of kube-relay, its mode, and the Deno that runs it",
    labels: { version: ["(version)"], mode: ["(mode)"], deno: ["(version)"] },
  },
  syncFailures: {
    name: "kube_relay_sync_failures_total",
    type: "counter",
    help: "Syncs that failed; their changes stayed and were tried again",
    labels: FAMILY,
  },
  quarantined: {
    name: "kube_relay_quarantined_service_ports",
    type: "gauge",
    help: "Service ports, or addresses of them, that could not be brought into effect",
    labels: FAMILY,
  },
  apiSilence: {
    name: "kube_relay_api_last_sign_of_life_age_seconds",
    type: "gauge",
    help:
      "Time since the API server was last heard of: by an event or a list of a kind, or by anything " +
      "on the connection",
    labels: RESOURCE,
  },
  watchFailures: {
    name: "kube_relay_watch_failures_total",
    type: "counter",
    help: "Watches that failed and were opened again",
    labels: RESOURCE,
  },
  relists: {
    name: "kube_relay_relists_total",
    type: "counter",
    help: "Complete lists that were read again because a watch could not be resumed",
    labels: RESOURCE,
  },
  tcpAccepted: {
    name: "kube_relay_userspace_tcp_connections_total",
    type: "counter",
    help: "TCP connections taken from clients",
    labels: FAMILY,
  },
  tcpRefused: {
    name: "kube_relay_userspace_tcp_refused_connections_total",
    type: "counter",
    help:
      "TCP connections closed at once: not allowed, over the bound, or no endpoint could be reached",
    labels: FAMILY,
  },
  tcpSilentClosed: {
    name: "kube_relay_userspace_tcp_silent_closed_connections_total",
    type: "counter",
    help:
      "TCP connections closed since they were silent and the bound of their Service was reached",
    labels: FAMILY,
  },
  dialFailures: {
    name: "kube_relay_userspace_tcp_dial_failures_total",
    type: "counter",
    help: "Attempts to connect to an endpoint that failed",
    labels: FAMILY,
  },
  dialTimeouts: {
    name: "kube_relay_userspace_tcp_dial_timeouts_total",
    type: "counter",
    help: "Attempts to connect to an endpoint that took too long; they failed, too",
    labels: FAMILY,
  },
  udpFlows: {
    name: "kube_relay_userspace_udp_flows_total",
    type: "counter",
    help: "UDP flows, one for each client and Service port",
    labels: FAMILY,
  },
  udpMoved: {
    name: "kube_relay_userspace_udp_moved_flows_total",
    type: "counter",
    help: "UDP flows that went over to another endpoint",
    labels: FAMILY,
  },
  udpDropped: {
    name: "kube_relay_userspace_udp_dropped_datagrams_total",
    type: "counter",
    help: "Datagrams of clients that were not allowed, had no endpoint, or could not be sent",
    labels: FAMILY,
  },
  udpForeignDropped: {
    name: "kube_relay_userspace_udp_foreign_dropped_datagrams_total",
    type: "counter",
    help: "Datagrams to a flow that did not come from its endpoint",
    labels: FAMILY,
  },
  eventLoopDelay: {
    name: "kube_relay_event_loop_delay_max_seconds",
    type: "gauge",
    help: "Longest time for which the event loop did not turn, since the start",
  },
  processCpu: {
    name: "process_cpu_seconds_total",
    type: "counter",
    help: "CPU time of the process, in user and in system mode",
  },
  processMemory: {
    name: "process_resident_memory_bytes",
    type: "gauge",
    help: "Memory of the process that is in RAM",
  },
  processStart: {
    name: "process_start_time_seconds",
    type: "gauge",
    help: "Unix time at which the process started",
  },
} as const satisfies Readonly<Record<string, Metric>>;

/** The name that the code has for a metric. */
export type MetricKey = keyof typeof METRICS;

/** The table again, with every column on each row. */
export const METRIC_ROWS: readonly Metric[] = Object.values(METRICS);

/** The most series that a metric can have. */
export function seriesBound({ labels = {}, buckets }: Metric): number {
  const combinations = Object.values(labels)
    .reduce((product, values) => product * values.length, 1);
  // A histogram has a series for each bucket and for +Inf, sum and count.
  return combinations * (buckets === undefined ? 1 : buckets.length + 3);
}
