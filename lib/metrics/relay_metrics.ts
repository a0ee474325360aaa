import { CONTROLLER_NAMES } from "../controller/loop_id.ts";
import { SOCKET_USES } from "../os/open_files.ts";
import { FAMILY, FORWARDING_MODES, type Metric } from "./metric.ts";

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

/** One loop of a controller. */
const LOOP = { controller: CONTROLLER_NAMES, ...FAMILY } as const;

/** Objects that another program may have removed or changed. */
const DRIFT = {
  ...LOOP,
  kind: ["chain", "rule", "set", "virtual_server", "address"],
} as const;

/** Rows by their name in the code. */
export const RELAY_METRICS = {
  buildInfo: {
    name: "kube_relay_build_info",
    type: "gauge",
    help: "Always 1; the labels are the version of kube-relay, its mode and the version of Deno",
    labels: { version: ["(version)"], mode: ["(mode)"], deno: ["(version)"] },
  },
  syncFailures: {
    name: "kube_relay_sync_failures_total",
    type: "counter",
    help: "Failed syncs; their changes are kept and tried again",
    labels: FAMILY,
  },
  quarantined: {
    name: "kube_relay_quarantined_service_ports",
    type: "gauge",
    help: "Service ports, or addresses of them, that could not be applied",
    labels: FAMILY,
  },
  controllerSyncDuration: {
    name: "kube_relay_controller_sync_duration_seconds",
    type: "histogram",
    help: "Duration of a sync of any controller, Services among them",
    labels: LOOP,
    buckets: [0.001, 0.01, 0.1, 1, 10, 60],
    startsAtZero: false,
  },
  controllerSyncFailures: {
    name: "kube_relay_controller_sync_failures_total",
    type: "counter",
    help: "Failed syncs of any controller; their changes are kept and tried again",
    labels: LOOP,
    startsAtZero: false,
  },
  controllerLastSync: {
    name: "kube_relay_controller_last_sync_timestamp_seconds",
    type: "gauge",
    help: "Time of the last successful sync of any controller",
    labels: LOOP,
  },
  controllerQuarantined: {
    name: "kube_relay_controller_quarantined_items",
    type: "gauge",
    help: "Items of any controller, or addresses of them, that could not be applied",
    labels: LOOP,
  },
  policies: {
    name: "kube_relay_network_policies",
    type: "gauge",
    help: "NetworkPolicies of the cluster, with --network-policy",
    labels: FAMILY,
  },
  policyIsolatedPods: {
    name: "kube_relay_network_policy_isolated_pods",
    type: "gauge",
    help: "Pods of this node that some NetworkPolicy isolates",
    labels: { ...FAMILY, direction: ["ingress", "egress"] },
  },
  policySets: {
    name: "kube_relay_network_policy_sets",
    type: "gauge",
    help: "Sets of peers that rules of NetworkPolicies name",
    labels: FAMILY,
  },
  policySetMembers: {
    name: "kube_relay_network_policy_set_members",
    type: "gauge",
    help: "Addresses, blocks and ports in the sets of peers",
    labels: FAMILY,
  },
  policyDeniedPackets: {
    name: "kube_relay_network_policy_denied_packets_total",
    type: "counter",
    help: "Packets that rules of NetworkPolicies denied, since rules were last written as a whole",
    labels: { ...FAMILY, direction: ["ingress", "egress"] },
    startsAtZero: false,
  },
  policyConnectionsCut: {
    name: "kube_relay_network_policy_connections_cut_total",
    type: "counter",
    help: "Tracked connections that were deleted because NetworkPolicies no longer allowed them",
    labels: FAMILY,
    startsAtZero: false,
  },
  apiSilence: {
    name: "kube_relay_api_last_sign_of_life_age_seconds",
    type: "gauge",
    help:
      "Time since the API server last sent data: an event or a list of a kind, or anything on the " +
      "connection",
    labels: RESOURCE,
  },
  watchFailures: {
    name: "kube_relay_watch_failures_total",
    type: "counter",
    help: "Failed watches, which were opened again",
    labels: RESOURCE,
    startsAtZero: false,
  },
  relists: {
    name: "kube_relay_relists_total",
    type: "counter",
    help: "Full lists that were read because a watch could not be resumed",
    labels: RESOURCE,
    startsAtZero: false,
  },
  driftFound: {
    name: "kube_relay_drift_found_total",
    type: "counter",
    help: "Objects of kube-relay that another program removed or changed",
    labels: DRIFT,
    startsAtZero: false,
  },
  driftRepaired: {
    name: "kube_relay_drift_repaired_total",
    type: "counter",
    help: "Objects of kube-relay that were repaired",
    labels: DRIFT,
    startsAtZero: false,
  },
  configReloads: {
    name: "kube_relay_config_reloads_total",
    type: "counter",
    help:
      "Changes of the configuration file: applied while running, applied by a restart, without " +
      "effect, or refused as invalid",
    labels: { result: ["applied", "restart", "unchanged", "refused"] },
  },
  healthBindFailures: {
    name: "kube_relay_service_health_bind_failures_total",
    type: "counter",
    help: "Failed attempts to listen on a healthCheckNodePort",
  },
  hostSettingsRefused: {
    name: "kube_relay_host_settings_refused",
    type: "gauge",
    help: "Required kernel settings that could not be made; `kube-relay status` names them",
  },
  openSockets: {
    name: "kube_relay_open_sockets",
    type: "gauge",
    help: "Listening sockets of Services, and sockets of the connections and flows through them",
    labels: { use: ["listener", "traffic"] },
  },
  refusedSockets: {
    name: "kube_relay_refused_sockets_total",
    type: "counter",
    help:
      "Sockets that were refused, or closed in favour of new ones, to keep within the limits of open " +
      "files and source ports: those of Services, and connections to the servers of kube-relay",
    labels: { use: SOCKET_USES },
  },
  uncaughtErrors: {
    name: "kube_relay_uncaught_errors_total",
    type: "counter",
    help: "Uncaught errors; each is logged and is a bug in kube-relay",
  },
  workerRestarts: {
    name: "kube_relay_userspace_worker_restarts_total",
    type: "counter",
    help: "Workers that ended, with their connections, and were started again",
    modes: FORWARDING_MODES,
  },
  tcpAccepted: {
    name: "kube_relay_userspace_tcp_connections_total",
    type: "counter",
    help: "TCP connections accepted from clients",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  tcpRefused: {
    name: "kube_relay_userspace_tcp_refused_connections_total",
    type: "counter",
    help:
      "TCP connections closed at once: not admitted, denied, above the limit, or no endpoint could be reached",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  tcpDenied: {
    name: "kube_relay_userspace_tcp_denied_connections_total",
    type: "counter",
    help: "TCP connections closed at once because NetworkPolicies denied them",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  tcpLimited: {
    name: "kube_relay_userspace_tcp_limited_connections_total",
    type: "counter",
    help: "TCP connections closed at once because a limit of their Service was reached",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  tcpExpired: {
    name: "kube_relay_userspace_tcp_expired_connections_total",
    type: "counter",
    help: "TCP connections closed by the idle time-out or the lifetime of their Service",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  proxyHeaderErrors: {
    name: "kube_relay_userspace_proxy_header_errors_total",
    type: "counter",
    help:
      "TCP connections closed, and UDP datagrams dropped, because a trusted client sent no valid " +
      "PROXY protocol header in time",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  tcpSilentClosed: {
    name: "kube_relay_userspace_tcp_silent_closed_connections_total",
    type: "counter",
    help: "Idle TCP connections closed because the limit of their Service was reached",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  dialFailures: {
    name: "kube_relay_userspace_tcp_dial_failures_total",
    type: "counter",
    help: "Failed attempts to connect to an endpoint, including time-outs",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  dialTimeouts: {
    name: "kube_relay_userspace_tcp_dial_timeouts_total",
    type: "counter",
    help: "Attempts to connect to an endpoint that timed out",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  udpFlows: {
    name: "kube_relay_userspace_udp_flows_total",
    type: "counter",
    help: "UDP flows, one for each client and Service port",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  udpMoved: {
    name: "kube_relay_userspace_udp_moved_flows_total",
    type: "counter",
    help: "UDP flows that moved to another endpoint",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  udpDropped: {
    name: "kube_relay_userspace_udp_dropped_datagrams_total",
    type: "counter",
    help:
      "Datagrams of clients that were not admitted, denied, had no endpoint, or could not be sent",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  udpDenied: {
    name: "kube_relay_userspace_udp_denied_datagrams_total",
    type: "counter",
    help: "Datagrams of clients that were dropped because NetworkPolicies denied them",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  udpLimited: {
    name: "kube_relay_userspace_udp_limited_datagrams_total",
    type: "counter",
    help: "Datagrams of clients that were dropped because a limit of their Service was reached",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  udpExpired: {
    name: "kube_relay_userspace_udp_expired_flows_total",
    type: "counter",
    help: "UDP flows ended by the lifetime of their Service",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  udpForeignDropped: {
    name: "kube_relay_userspace_udp_foreign_dropped_datagrams_total",
    type: "counter",
    help: "Datagrams to a flow from another sender than its endpoint",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  healthChecks: {
    name: "kube_relay_userspace_health_checks_total",
    type: "counter",
    help: "Health checks of endpoints: passed, failed, or not answered in time",
    labels: { ...FAMILY, result: ["passed", "failed", "timeout"] },
    modes: FORWARDING_MODES,
  },
  ejections: {
    name: "kube_relay_userspace_ejections_total",
    type: "counter",
    help: "Endpoints ejected because connections to them failed",
    labels: FAMILY,
    modes: FORWARDING_MODES,
  },
  endpointHealth: {
    name: "kube_relay_userspace_endpoints",
    type: "gauge",
    help:
      "Endpoints of Services with settings for health; those that are not checked yet count as healthy",
    labels: { ...FAMILY, state: ["healthy", "unhealthy", "ejected"] },
    modes: FORWARDING_MODES,
  },
  eventLoopDelay: {
    name: "kube_relay_event_loop_delay_max_seconds",
    type: "gauge",
    help: "Longest delay of the event loop since the start",
  },
} as const satisfies Readonly<Record<string, Metric>>;
