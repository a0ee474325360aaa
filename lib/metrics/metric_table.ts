/**
 * The table of metrics, the source of the instruments and of docs/metrics.md.
 *
 * Names, types, labels, buckets and modes of `kubeproxy_` metrics are kube-proxy's (pkg/proxy/metrics of
 * Kubernetes 1.36), so that its dashboards and alerts keep working; kube-relay's own begin with
 * `kube_relay_`. Each label has a bounded set of values: the number of series does not grow with the
 * cluster, except for the sessions of a BGP mesh.
 *
 * @module
 */
import { CONTROLLER_NAMES } from "../engine/loop_id.ts";
import { SOCKET_USES } from "../os/open_files.ts";
import { BACKEND_MODES, type BackendMode, MODE_TRAITS } from "../proxy/backend.ts";
import type { ServiceTraffic } from "../proxy/service_traffic.ts";

/** One row of the table. */
export interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  /** Meaning, as one sentence without a full stop. */
  readonly help: string;
  /** Labels, each with all its values; one in parentheses is constant for the process. */
  readonly labels: Readonly<Record<string, readonly string[]>>;
  /** Upper bounds of a histogram's buckets, in seconds. */
  readonly buckets?: readonly number[];
  /**
   * Whether every series exists before the first event; only for counters and histograms. @default
   * {true}
   */
  readonly startsAtZero?: boolean;
  /** The modes that have the metric. @default all of them */
  readonly modes?: readonly BackendMode[];
}

/** Whether a mode has a metric. */
export function hasMetric(mode: BackendMode, { modes }: Metric): boolean {
  return modes === undefined || modes.includes(mode);
}

type Rows<Type, Labels, Helps> = {
  readonly [Name in keyof Helps & string]: Metric & {
    readonly name: Name;
    readonly type: Type;
    readonly labels: Labels;
  };
};

/** Rows that differ only in their names and meanings. */
function rows<
  const Type extends Metric["type"],
  const Labels extends Metric["labels"],
  Helps extends Readonly<Record<string, string>>,
>(
  type: Type,
  labels: Labels,
  others: Pick<Metric, "buckets" | "startsAtZero" | "modes">,
  helps: Helps,
): Rows<Type, Labels, Helps> {
  const entries = Object.entries(helps).map(([name, help]) => [
    name,
    { name, type, help, labels, ...others },
  ]);
  return Object.fromEntries(entries);
}

const KERNEL_MODES = BACKEND_MODES.filter((mode) => !MODE_TRAITS[mode].forwardsItself);
const FORWARDING_MODES = BACKEND_MODES.filter((mode) => MODE_TRAITS[mode].forwardsItself);
/** Modes in which kube-relay sees each connection. */
const FORWARDING = { modes: FORWARDING_MODES };
const IPTABLES = { modes: ["iptables"] } as const;
const NFTABLES = { modes: ["nftables"] } as const;
/** Without series before the first event. */
const LATE = { startsAtZero: false };

/** The label of most metrics, with upstream's spelling. */
const FAMILY = { ip_family: ["IPv4", "IPv6"] } as const;
/** One loop of a controller. */
const LOOP = { controller: CONTROLLER_NAMES, ...FAMILY } as const;
const DIRECTION = { ...FAMILY, direction: ["ingress", "egress"] } as const;
/** Objects that another program may have removed or changed. */
const DRIFT = { ...LOOP, kind: ["chain", "rule", "set", "virtual_server", "address"] } as const;
/** One BGP session. The configuration limits their number, and nodes of the mesh. */
const PEER = { peer: ["(name)"] } as const;
const POOL = { pool: ["(name)"], ...FAMILY } as const;
const RESOURCES = [
  "connection",
  "services",
  "endpointslices",
  "endpoints",
  "nodes",
  "servicecidrs",
  "other",
] as const;
const RESOURCE = { resource: RESOURCES } as const;
/** What `kube-relay status` lists under "Problems". */
export const PROBLEM_KINDS = [
  "state",
  "sync",
  "quarantine",
  "source",
  "kernel",
  "service",
] as const;

/** The kind of a problem. */
export type ProblemKind = typeof PROBLEM_KINDS[number];

/** 0.001 s doubling to 16.384 s. */
const SYNC_BUCKETS = Array.from({ length: 15 }, (_, index) => 0.001 * 2 ** index);

/** Upstream's buckets of the network programming latency: fine below a minute, coarse up to 5. */
const PROGRAMMING_BUCKETS = [
  ...[0.25, 0.5],
  ...Array.from({ length: 59 }, (_, index) => 1 + index),
  ...Array.from({ length: 12 }, (_, index) => 60 + 5 * index),
  ...Array.from({ length: 7 }, (_, index) => 120 + 30 * index),
];

const PROXY_METRICS = {
  ...rows("histogram", FAMILY, { buckets: SYNC_BUCKETS }, {
    "kubeproxy_sync_proxy_rules_duration_seconds": "Duration of each sync, including failed ones",
  }),
  ...rows("histogram", FAMILY, { buckets: SYNC_BUCKETS, modes: ["iptables", "nftables"] }, {
    "kubeproxy_sync_full_proxy_rules_duration_seconds":
      "Duration of each full sync, including failed ones",
    "kubeproxy_sync_partial_proxy_rules_duration_seconds":
      "Duration of each sync that writes only changes, including failed ones",
  }),
  ...rows("gauge", FAMILY, {}, {
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds": "Unix time of the last successful sync",
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds":
      "Unix time of the last request for a sync, or of the start of the sync loop",
  }),
  ...rows("histogram", FAMILY, { buckets: PROGRAMMING_BUCKETS }, {
    "kubeproxy_network_programming_duration_seconds":
      "Time from a change of endpoints in the control plane until it took effect on this node",
  }),
  ...rows("gauge", {}, {}, {
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending":
      "EndpointSlices that changed since the last sync began",
    "kubeproxy_sync_proxy_rules_service_changes_pending": "Changed Services that wait for a sync",
  }),
  ...rows("counter", {}, {}, {
    "kubeproxy_sync_proxy_rules_endpoint_changes_total": "Changes of endpoints received",
    "kubeproxy_sync_proxy_rules_service_changes_total": "Changes of Services received",
  }),
  ...rows("gauge", { traffic_policy: ["internal", "external"], ...FAMILY }, {}, {
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total":
      "Service ports with traffic policy Local whose endpoints are all on other nodes",
  }),
  ...rows("counter", { code: ["200", "503"] }, {}, {
    "kubeproxy_proxy_healthz_total": "Answers of /healthz, by status code",
    "kubeproxy_proxy_livez_total": "Answers of /livez, by status code",
  }),
  ...rows("gauge", { table: ["nat", "filter"], ...FAMILY }, IPTABLES, {
    "kubeproxy_sync_proxy_rules_iptables_total": "iptables rules of kube-relay",
    "kubeproxy_sync_proxy_rules_iptables_last": "iptables rules written by the last sync",
  }),
  ...rows("counter", FAMILY, { modes: ["iptables", "ipvs"] }, {
    "kubeproxy_sync_proxy_rules_iptables_restore_failures_total":
      "Failed calls of iptables-restore, including those of a cleanup",
  }),
  ...rows("counter", FAMILY, IPTABLES, {
    "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total":
      "Failed syncs that write only changes; a full sync follows each",
  }),
  ...rows("counter", FAMILY, NFTABLES, {
    "kubeproxy_sync_proxy_rules_nftables_sync_failures_total": "Transactions that nftables refused",
    "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total":
      "Removals of unused chains that nftables refused",
  }),
  ...rows("histogram", FAMILY, { buckets: SYNC_BUCKETS, modes: KERNEL_MODES }, {
    "kubeproxy_conntrack_reconciler_sync_duration_seconds":
      "Duration of each search for stale UDP flows, or for unanswered TCP attempts",
  }),
  ...rows("counter", FAMILY, { modes: KERNEL_MODES }, {
    "kubeproxy_conntrack_reconciler_deleted_entries_total":
      "Stale UDP flows that were deleted from the connection tracking table",
  }),
  ...rows("counter", {}, IPTABLES, {
    "kubeproxy_iptables_ct_state_invalid_dropped_packets_total":
      "Dropped packets that connection tracking considers invalid; absent without nfacct",
    "kubeproxy_iptables_localhost_nodeports_accepted_packets_total":
      "Packets to node ports on the loopback address; absent without nfacct",
  }),
  // Every Kubernetes component gets these from its shared libraries, unless they only concern Go.
  ...rows(
    "gauge",
    { name: ["(each gate of --feature-gates)"], stage: ["", "ALPHA", "BETA", "DEPRECATED"] },
    {},
    {
      "kubernetes_feature_enabled": "1 if the feature gate is on, 0 if it is off",
    },
  ),
  ...rows(
    "counter",
    { code: ["(status)", "<error>"], method: ["GET", "POST", "PATCH"], host: ["(API server)"] },
    LATE,
    {
      "rest_client_requests_total":
        "Requests to the API server, by status of the answer; `<error>` if there was none",
    },
  ),
  ...rows("histogram", { verb: ["GET", "POST", "PATCH"], host: ["(API server)"] }, {
    buckets: [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60],
    startsAtZero: false,
  }, {
    "rest_client_request_duration_seconds":
      "Time until the API server's answer began, without watches",
  }),
  ...rows("counter", {}, {}, {
    "process_cpu_seconds_total": "CPU time of the process in user and system mode",
  }),
  ...rows("gauge", {}, {}, {
    "process_resident_memory_bytes": "Resident memory of the process",
    "process_max_fds": "Limit of open files; 65536 if it cannot be read",
    "process_start_time_seconds": "Unix time at which the process started",
  }),
  // kube-relay's own.
  ...rows("gauge", { version: ["(version)"], mode: ["(mode)"], deno: ["(version)"] }, {}, {
    "kube_relay_build_info":
      "Always 1; the labels are the version of kube-relay, its mode and the version of Deno",
  }),
  ...rows("counter", FAMILY, {}, {
    "kube_relay_sync_failures_total": "Failed syncs; their changes are kept and tried again",
  }),
  ...rows("gauge", { kind: PROBLEM_KINDS }, {}, {
    "kube_relay_problems": "Problems that `kube-relay status` lists, by kind; 0 = none",
  }),
  ...rows("gauge", { kind: ["policy", "pod"] }, {}, {
    "kube_relay_network_policy_problems":
      "Policies with parts that cannot be used, and pods of this node with too many rules, to which nothing is allowed; with --network-policy",
  }),
  ...rows("gauge", { tier: ["Admin", "Baseline"] }, {}, {
    "kube_relay_cluster_network_policies":
      "ClusterNetworkPolicies of the cluster, with --network-policy",
  }),
  ...rows("gauge", {}, { modes: KERNEL_MODES }, {
    "kube_relay_conntrack_entries":
      "Entries of the connection tracking table of this node; absent if the kernel has none",
    "kube_relay_conntrack_limit": "Most entries of the connection tracking table",
  }),
  ...rows("gauge", FAMILY, {}, {
    "kube_relay_planned_service_ports": "Service ports that this node is to serve",
    "kube_relay_quarantined_service_ports":
      "Service ports, or addresses of them, that could not be applied",
    "kube_relay_network_policies": "NetworkPolicies of the cluster, with --network-policy",
    "kube_relay_network_policy_sets": "Sets of peers that rules of NetworkPolicies name",
    "kube_relay_network_policy_set_members": "Addresses, blocks and ports in the sets of peers",
  }),
  ...rows("histogram", LOOP, { buckets: [0.001, 0.01, 0.1, 1, 10, 60], startsAtZero: false }, {
    "kube_relay_controller_sync_duration_seconds":
      "Duration of a sync of any controller, Services among them",
  }),
  ...rows("counter", LOOP, LATE, {
    "kube_relay_controller_sync_failures_total":
      "Failed syncs of any controller; their changes are kept and tried again",
  }),
  ...rows("gauge", LOOP, {}, {
    "kube_relay_controller_last_sync_timestamp_seconds":
      "Time of the last successful sync of any controller",
    "kube_relay_controller_quarantined_items":
      "Items of any controller, or addresses of them, that could not be applied",
  }),
  ...rows("gauge", DIRECTION, {}, {
    "kube_relay_network_policy_isolated_pods": "Pods of this node that some NetworkPolicy isolates",
  }),
  ...rows("counter", DIRECTION, LATE, {
    "kube_relay_network_policy_denied_packets_total":
      "Packets that rules of NetworkPolicies denied, since rules were last written as a whole",
  }),
  ...rows("counter", FAMILY, LATE, {
    "kube_relay_network_policy_connections_cut_total":
      "Tracked connections that were deleted because NetworkPolicies no longer allowed them",
  }),
  ...rows("gauge", RESOURCE, {}, {
    "kube_relay_api_last_sign_of_life_age_seconds":
      "Time since the API server last sent data: an event or a list of a kind, or anything on the connection",
  }),
  ...rows("counter", RESOURCE, LATE, {
    "kube_relay_watch_failures_total": "Failed watches, which were opened again",
    "kube_relay_relists_total": "Full lists that were read because a watch could not be resumed",
  }),
  ...rows("counter", DRIFT, LATE, {
    "kube_relay_drift_found_total": "Objects of kube-relay that another program removed or changed",
    "kube_relay_drift_repaired_total": "Objects of kube-relay that were repaired",
  }),
  ...rows("counter", { result: ["applied", "restart", "unchanged", "refused"] }, {}, {
    "kube_relay_config_reloads_total":
      "Changes of the configuration file: applied while running, applied by a restart, without effect, or refused as invalid",
  }),
  ...rows("counter", {}, {}, {
    "kube_relay_service_health_bind_failures_total":
      "Failed attempts to listen on a healthCheckNodePort",
    "kube_relay_uncaught_errors_total":
      "Uncaught errors; each is logged and is a bug in kube-relay",
  }),
  ...rows("gauge", {}, {}, {
    "kube_relay_host_settings_refused":
      "Required kernel settings that could not be made; `kube-relay status` names them",
    "kube_relay_event_loop_delay_max_seconds": "Longest delay of the event loop since the start",
  }),
  ...rows("gauge", { use: ["listener", "traffic"] }, {}, {
    "kube_relay_open_sockets":
      "Listening sockets of Services, and sockets of the connections and flows through them",
  }),
  ...rows("counter", { use: SOCKET_USES }, {}, {
    "kube_relay_refused_sockets_total":
      "Sockets that were refused, or closed in favour of new ones, to keep within the limits of open files and source ports: those of Services, and connections to the servers of kube-relay",
  }),
  ...rows("counter", {}, FORWARDING, {
    "kube_relay_userspace_worker_restarts_total":
      "Workers that ended, with their connections, and were started again",
  }),
  ...rows("counter", FAMILY, FORWARDING, {
    "kube_relay_userspace_tcp_connections_total": "TCP connections accepted from clients",
    "kube_relay_userspace_tcp_refused_connections_total":
      "TCP connections closed at once: not admitted, denied, above the limit, or no endpoint could be reached",
    "kube_relay_userspace_tcp_denied_connections_total":
      "TCP connections closed at once because NetworkPolicies denied them",
    "kube_relay_userspace_tcp_limited_connections_total":
      "TCP connections closed at once because a limit of their Service was reached",
    "kube_relay_userspace_tcp_expired_connections_total":
      "TCP connections closed by the idle time-out or the lifetime of their Service",
    "kube_relay_userspace_proxy_header_errors_total":
      "TCP connections closed, and UDP datagrams dropped, because a trusted client sent no valid PROXY protocol header in time",
    "kube_relay_userspace_server_name_errors_total":
      "TCP connections closed because no valid TLS ClientHello came in time, or no Service takes its server name",
    "kube_relay_userspace_tcp_silent_closed_connections_total":
      "Idle TCP connections closed because the limit of their Service was reached",
    "kube_relay_userspace_tcp_dial_failures_total":
      "Failed attempts to connect to an endpoint, including time-outs",
    "kube_relay_userspace_tcp_dial_timeouts_total":
      "Attempts to connect to an endpoint that timed out",
    "kube_relay_userspace_udp_flows_total": "UDP flows, one for each client and Service port",
    "kube_relay_userspace_udp_moved_flows_total": "UDP flows that moved to another endpoint",
    "kube_relay_userspace_udp_dropped_datagrams_total":
      "Datagrams of clients that were not admitted, denied, had no endpoint, or could not be sent",
    "kube_relay_userspace_udp_denied_datagrams_total":
      "Datagrams of clients that were dropped because NetworkPolicies denied them",
    "kube_relay_userspace_udp_limited_datagrams_total":
      "Datagrams of clients that were dropped because a limit of their Service was reached",
    "kube_relay_userspace_udp_expired_flows_total":
      "UDP flows ended by the lifetime of their Service",
    "kube_relay_userspace_udp_foreign_dropped_datagrams_total":
      "Datagrams to a flow from another sender than its endpoint",
    "kube_relay_userspace_ejections_total": "Endpoints ejected because connections to them failed",
  }),
  ...rows("counter", { ...FAMILY, result: ["passed", "failed", "timeout"] }, FORWARDING, {
    "kube_relay_userspace_health_checks_total":
      "Health checks of endpoints: passed, failed, or not answered in time",
  }),
  ...rows("gauge", { ...FAMILY, state: ["healthy", "unhealthy", "ejected"] }, FORWARDING, {
    "kube_relay_userspace_endpoints":
      "Endpoints of Services with settings for health; those that are not checked yet count as healthy",
  }),
} as const;

/** The metrics of load balancer addresses and routes, which only runs with `--routing` have. */
export const ROUTING_METRICS = {
  ...rows("gauge", PEER, {}, {
    "kube_relay_routing_bgp_session_up":
      "Whether the BGP session with a peer is established; no series while BIRD is silent",
    "kube_relay_routing_bgp_refused_updates":
      "Updates of a peer that the filters refused since its session began",
  }),
  ...rows("gauge", { ...PEER, direction: ["in", "out"] }, {}, {
    "kube_relay_routing_bgp_prefixes": "Prefixes accepted from a peer (in) and sent to it (out)",
  }),
  ...rows(
    "gauge",
    { kind: ["cluster-ip", "external-ip", "load-balancer", "pod-cidr", "service-range"] },
    {},
    {
      "kube_relay_routing_announced_prefixes":
        "Prefixes that this node announces by BGP, by what they are",
    },
  ),
  ...rows("gauge", { path: ["direct", "tunnel"] }, {}, {
    "kube_relay_routing_pod_routes":
      "Routes to the pods of other nodes, by whether they lead through a tunnel",
  }),
  ...rows("gauge", FAMILY, {}, {
    "kube_relay_routing_owned_addresses":
      "Addresses of layer 2 that this node holds on its interfaces",
  }),
  ...rows("counter", { ...FAMILY, change: ["gained", "lost"] }, LATE, {
    "kube_relay_routing_owner_changes_total":
      "Addresses of layer 2 that this node took from another node, or lost to one (failovers)",
  }),
  ...rows("gauge", POOL, {}, {
    "kube_relay_routing_pool_addresses": "Addresses of a pool",
    "kube_relay_routing_pool_used_addresses":
      "Addresses of a pool that Services have in their status",
  }),
  ...rows("gauge", {}, {}, {
    "kube_relay_routing_assigns": "Whether this process assigns addresses for the cluster",
    "kube_relay_routing_refused_services":
      "Services without an address, or without the one that they ask for",
  }),
  ...rows("counter", { outcome: ["written", "conflict", "failed"] }, LATE, {
    "kube_relay_routing_status_writes_total":
      "Writes of the status of Services (allocations and releases), with the outcome",
  }),
} as const;

/** Every metric that prom-client keeps. */
export const METRICS = { ...PROXY_METRICS, ...ROUTING_METRICS } as const;

/** One port of a Service; `other` stands for all Services without a series of their own. */
const SERVICE = {
  namespace: ["(namespace)"],
  service: ["(name)", "other"],
  port_name: ["(port)"],
  protocol: ["TCP", "UDP", "SCTP"],
  ...FAMILY,
} as const;

/** The metrics of each Service, only with `--service-counters`. */
export const SERVICE_METRICS: Readonly<Record<string, Metric>> = {
  ...rows("counter", SERVICE, { modes: [...FORWARDING_MODES, "nftables"] }, {
    "kube_relay_service_received_bytes_total":
      "Bytes that clients sent to the Service; in nftables mode including IP headers",
    "kube_relay_service_sent_bytes_total":
      "Bytes that endpoints sent back; in nftables mode including IP headers",
  }),
  ...rows("counter", SERVICE, NFTABLES, {
    "kube_relay_service_received_packets_total":
      "Packets that clients sent to the Service; merged packets (GRO) count as one",
    "kube_relay_service_sent_packets_total":
      "Packets that endpoints sent back; merged packets (GRO) count as one",
  }),
  ...rows("counter", SERVICE, FORWARDING, {
    "kube_relay_service_connections_total": "TCP connections and UDP flows accepted",
  }),
  ...rows("gauge", SERVICE, FORWARDING, {
    "kube_relay_service_open_connections": "Open TCP connections and UDP flows",
    "kube_relay_service_healthy_endpoints":
      "Endpoints that are neither unhealthy nor ejected; only of Services with settings for health",
    "kube_relay_service_unhealthy_endpoints": "Endpoints that fail their health checks",
    "kube_relay_service_ejected_endpoints":
      "Endpoints that are ejected because connections to them failed",
  }),
};

/** The figure that each of them shows. */
export const SERVICE_FIGURES: Readonly<Record<string, keyof ServiceTraffic>> = {
  "kube_relay_service_received_bytes_total": "bytesFromClients",
  "kube_relay_service_sent_bytes_total": "bytesToClients",
  "kube_relay_service_received_packets_total": "packetsFromClients",
  "kube_relay_service_sent_packets_total": "packetsToClients",
  "kube_relay_service_connections_total": "opened",
  "kube_relay_service_open_connections": "open",
  "kube_relay_service_healthy_endpoints": "healthyEndpoints",
  "kube_relay_service_unhealthy_endpoints": "unhealthyEndpoints",
  "kube_relay_service_ejected_endpoints": "ejectedEndpoints",
};
