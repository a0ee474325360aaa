/**
 * The metrics of kube-proxy: names, types, labels, buckets and modes are upstream's
 * (pkg/proxy/metrics of Kubernetes 1.36), so that its dashboards and alerts keep working.
 *
 * @module
 */
import { FAMILY, KERNEL_MODES, type Metric } from "./metric.ts";

const CODE = { code: ["200", "503"] } as const;

/** The modes in which upstream can write a part of the rules. */
const PARTIAL_SYNC_MODES = ["iptables", "nftables"] as const;

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

/** Rows by their name in the code. */
export const KUBE_PROXY_METRICS = {
  syncDuration: {
    name: "kubeproxy_sync_proxy_rules_duration_seconds",
    type: "histogram",
    help: "Duration of each sync, including failed ones",
    labels: FAMILY,
    buckets: SYNC_BUCKETS,
  },
  fullSyncDuration: {
    name: "kubeproxy_sync_full_proxy_rules_duration_seconds",
    type: "histogram",
    help: "Duration of each full sync, including failed ones",
    labels: FAMILY,
    buckets: SYNC_BUCKETS,
    modes: PARTIAL_SYNC_MODES,
  },
  partialSyncDuration: {
    name: "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    type: "histogram",
    help: "Duration of each sync that writes only changes, including failed ones",
    labels: FAMILY,
    buckets: SYNC_BUCKETS,
    modes: PARTIAL_SYNC_MODES,
  },
  lastSynced: {
    name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    type: "gauge",
    help: "Unix time of the last successful sync",
    labels: FAMILY,
  },
  lastQueued: {
    name: "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    type: "gauge",
    help: "Unix time of the last request for a sync, or of the start of the sync loop",
    labels: FAMILY,
  },
  programmingDuration: {
    name: "kubeproxy_network_programming_duration_seconds",
    type: "histogram",
    help: "Time from a change of endpoints in the control plane until it took effect on this node",
    labels: FAMILY,
    buckets: PROGRAMMING_BUCKETS,
  },
  endpointChangesPending: {
    name: "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    type: "gauge",
    help: "EndpointSlices that changed since the last sync began",
  },
  endpointChanges: {
    name: "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    type: "counter",
    help: "Changes of endpoints received",
  },
  serviceChangesPending: {
    name: "kubeproxy_sync_proxy_rules_service_changes_pending",
    type: "gauge",
    help: "Changed Services that wait for a sync",
  },
  serviceChanges: {
    name: "kubeproxy_sync_proxy_rules_service_changes_total",
    type: "counter",
    help: "Changes of Services received",
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
    help: "Answers of /healthz, by status code",
    labels: CODE,
  },
  livezAnswers: {
    name: "kubeproxy_proxy_livez_total",
    type: "counter",
    help: "Answers of /livez, by status code",
    labels: CODE,
  },
  iptablesRules: {
    name: "kubeproxy_sync_proxy_rules_iptables_total",
    type: "gauge",
    help: "iptables rules of kube-relay",
    labels: { table: ["nat", "filter"], ...FAMILY },
    modes: ["iptables"],
  },
  iptablesRulesWritten: {
    name: "kubeproxy_sync_proxy_rules_iptables_last",
    type: "gauge",
    help: "iptables rules written by the last sync",
    labels: { table: ["nat", "filter"], ...FAMILY },
    modes: ["iptables"],
  },
  restoreFailures: {
    name: "kubeproxy_sync_proxy_rules_iptables_restore_failures_total",
    type: "counter",
    help: "Failed calls of iptables-restore, including those of a cleanup",
    labels: FAMILY,
    modes: ["iptables", "ipvs"],
  },
  partialRestoreFailures: {
    name: "kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total",
    type: "counter",
    help: "Failed syncs that write only changes; a full sync follows each",
    labels: FAMILY,
    modes: ["iptables"],
  },
  nftablesSyncFailures: {
    name: "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
    type: "counter",
    help: "Transactions that nftables refused",
    labels: FAMILY,
    modes: ["nftables"],
  },
  nftablesCleanupFailures: {
    name: "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
    type: "counter",
    help: "Removals of unused chains that nftables refused",
    labels: FAMILY,
    modes: ["nftables"],
  },
  conntrackDuration: {
    name: "kubeproxy_conntrack_reconciler_sync_duration_seconds",
    type: "histogram",
    help: "Duration of each search for stale UDP flows, or for unanswered TCP attempts",
    labels: FAMILY,
    buckets: SYNC_BUCKETS,
    modes: KERNEL_MODES,
  },
  conntrackDeleted: {
    name: "kubeproxy_conntrack_reconciler_deleted_entries_total",
    type: "counter",
    help: "Stale UDP flows that were deleted from the connection tracking table",
    labels: FAMILY,
    modes: KERNEL_MODES,
  },
  invalidDropped: {
    name: "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
    type: "counter",
    help: "Dropped packets that connection tracking considers invalid; absent without nfacct",
    modes: ["iptables"],
  },
  localhostNodePorts: {
    name: "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
    type: "counter",
    help: "Packets to node ports on the loopback address; absent without nfacct",
    modes: ["iptables"],
  },
} as const satisfies Readonly<Record<string, Metric>>;
