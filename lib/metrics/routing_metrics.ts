import { FAMILY, type Metric } from "./metric.ts";

/** One BGP session. The configuration limits their number, and nodes of the mesh. */
const PEER = { peer: ["(name)"] } as const;

const ROWS = {
  routingSessionUp: {
    name: "kube_relay_routing_bgp_session_up",
    type: "gauge",
    help: "Whether the BGP session with a peer is established; no series while BIRD is silent",
    labels: PEER,
  },
  routingPrefixes: {
    name: "kube_relay_routing_bgp_prefixes",
    type: "gauge",
    help: "Prefixes accepted from a peer (in) and sent to it (out)",
    labels: { ...PEER, direction: ["in", "out"] },
  },
  routingRefusedUpdates: {
    name: "kube_relay_routing_bgp_refused_updates",
    type: "gauge",
    help: "Updates of a peer that the filters refused since its session began",
    labels: PEER,
  },
  routingAnnounced: {
    name: "kube_relay_routing_announced_prefixes",
    type: "gauge",
    help: "Prefixes that this node announces by BGP, by what they are",
    labels: {
      kind: ["cluster-ip", "external-ip", "load-balancer", "pod-cidr", "service-range"],
    },
  },
  routingPodRoutes: {
    name: "kube_relay_routing_pod_routes",
    type: "gauge",
    help: "Routes to the pods of other nodes, by whether they lead through a tunnel",
    labels: { path: ["direct", "tunnel"] },
  },
  routingLayer2Addresses: {
    name: "kube_relay_routing_owned_addresses",
    type: "gauge",
    help: "Addresses of layer 2 that this node holds on its interfaces",
    labels: FAMILY,
  },
  routingLayer2Moves: {
    name: "kube_relay_routing_owner_changes_total",
    type: "counter",
    help: "Addresses of layer 2 that this node took from another node, or lost to one (failovers)",
    labels: { ...FAMILY, change: ["gained", "lost"] },
    startsAtZero: false,
  },
  routingPoolAddresses: {
    name: "kube_relay_routing_pool_addresses",
    type: "gauge",
    help: "Addresses of a pool",
    labels: { pool: ["(name)"], ...FAMILY },
  },
  routingPoolUsed: {
    name: "kube_relay_routing_pool_used_addresses",
    type: "gauge",
    help: "Addresses of a pool that Services have in their status",
    labels: { pool: ["(name)"], ...FAMILY },
  },
  routingAssigns: {
    name: "kube_relay_routing_assigns",
    type: "gauge",
    help: "Whether this process assigns addresses for the cluster",
    labels: {},
  },
  routingStatusWrites: {
    name: "kube_relay_routing_status_writes_total",
    type: "counter",
    help: "Writes of the status of Services (allocations and releases), with the outcome",
    labels: { outcome: ["written", "conflict", "failed"] },
    startsAtZero: false,
  },
  routingRefusals: {
    name: "kube_relay_routing_refused_services",
    type: "gauge",
    help: "Services without an address, or without the one that they ask for",
    labels: {},
  },
} as const satisfies Readonly<Record<string, Metric>>;

type Row<Key extends keyof typeof ROWS> = typeof ROWS[Key] & { readonly isOnDemand: true };

/** Rows by their name in the code. Only runs with `--routing` have them. */
export const ROUTING_METRICS = Object.fromEntries(
  Object.entries(ROWS).map(([key, row]) => [key, { ...row, isOnDemand: true }]),
) as { readonly [Key in keyof typeof ROWS]: Row<Key> };
