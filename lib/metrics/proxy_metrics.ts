/**
 * The metrics of the process: instruments of prom-client by their names, and the methods that set
 * several of them.
 *
 * prom-client's default metrics are not used: they read `/proc`, which Deno opens only with all
 * permissions. `process_open_fds` and `process_virtual_memory_bytes` need it and are left out.
 *
 * @module
 */
import { cpuUsage } from "node:process";
import type { LoopId } from "../engine/loop_id.ts";
import type { SyncEvent } from "../engine/sync_event.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import { type Clock, systemClock } from "../os/clock.ts";
import type { OpenFiles } from "../os/open_files.ts";
import type { DeniedPackets, Direction } from "../policy/policy_plan.ts";
import type {
  BackendMode,
  HealthFigures,
  RuleCounters,
  TrafficCounters,
} from "../proxy/backend.ts";
import type { SyncReport } from "../proxy/data_plane.ts";
import type { ServiceTrafficRow, ServiceTrafficTable } from "../proxy/service_traffic.ts";
import type { PoolUse } from "../routing/address_pool.ts";
import type { BgpPlan, BgpSessionFigures } from "../routing/bgp_plan.ts";
import type { PodRoute } from "../routing/pod_network_plan.ts";
import {
  hasMetric,
  type Metric,
  METRICS,
  type ProblemKind,
  ROUTING_METRICS,
  SERVICE_FIGURES,
  SERVICE_METRICS,
} from "./metric_table.ts";
import { Counter, Gauge, Histogram, Registry } from "./prom_client.ts";

type InstrumentOf<Row extends Metric> = Row["type"] extends "counter" ? Counter
  : Row["type"] extends "gauge" ? Gauge
  : Histogram;

/** An instrument for each row of the table, by its name. */
type Instruments = {
  readonly [Name in keyof typeof METRICS]: InstrumentOf<typeof METRICS[Name]>;
};

/** The build info and the start time of the process. */
interface MetricsOptions {
  /** Version of kube-relay. */
  readonly version: string;
  readonly mode: BackendMode;
  /** The IP families that run; no series of another one exists. @default {both} */
  readonly families?: readonly IpFamily[];
  /** The empty string is the stage of a generally available gate, as upstream spells it. */
  readonly featureGates?: readonly {
    readonly name: string;
    readonly stage: typeof METRICS["kubernetes_feature_enabled"]["labels"]["stage"][number];
    readonly enabled: boolean;
  }[];
  /** Counters of each Service; absent = Services are not counted. */
  readonly traffic?: ServiceTrafficTable;
  /** Whether load balancer addresses and routes are managed. @default {false} */
  readonly hasRouting?: boolean;
  /** @default {systemClock} */
  readonly clock?: Clock;
}

/** Unexpected differences of a data plane, and repairs. */
export interface DriftFigures {
  readonly kind: typeof METRICS["kube_relay_drift_found_total"]["labels"]["kind"][number];
  readonly found: number;
  readonly repaired: number;
}

/** Records events and renders them as Prometheus text. Times are milliseconds since 1970. */
export class ProxyMetrics {
  /** The instruments, for what is one value. */
  readonly its: Instruments;
  readonly #options: MetricsOptions;
  readonly #registry = new Registry();
  readonly #changes = new Map<IpFamily, Parameters<ProxyMetrics["setChanges"]>[1]>();

  /** All are at zero. */
  constructor(options: MetricsOptions) {
    this.#options = options;
    this.its = createInstruments(this.#registry, options);
    setFacts(this.its, options);
  }

  /** Renders all metrics except those of each Service. */
  async render(): Promise<{ readonly contentType: string; readonly body: string }> {
    const { user, system } = cpuUsage();
    setCounter(this.its["process_cpu_seconds_total"], {}, (user + system) / 1e6);
    this.its["process_resident_memory_bytes"].set(Deno.memoryUsage().rss);
    return { contentType: this.#registry.contentType, body: await this.#registry.metrics() };
  }

  /** Renders the rest in pieces; `undefined` if Services are not counted. */
  renderServices(): AsyncIterable<string> | undefined {
    const { traffic, mode, clock = systemClock } = this.#options;
    return traffic && renderServiceSeries(traffic, mode, () => clock.yieldToEventLoop());
  }

  /** Counts the syncs of all controllers. Loops of Services also have kube-proxy's metrics. */
  on(event: SyncEvent): void {
    const { its } = this;
    const labels = loopLabels(event.loop);
    if (event.kind === "synced") {
      const { at, quarantined } = event;
      its["kube_relay_controller_last_sync_timestamp_seconds"].set(labels, at / 1000);
      its["kube_relay_controller_quarantined_items"].set(labels, quarantined.length);
    } else if (event.kind === "failed") {
      its["kube_relay_controller_sync_failures_total"].inc(labels);
    }
    if (event.kind === "synced" || event.kind === "failed") {
      its["kube_relay_controller_sync_duration_seconds"].observe(labels, event.seconds);
    }
  }

  /** The data plane was compared with what kube-relay had written. */
  driftFound(loop: LoopId, { kind, found, repaired }: DriftFigures): void {
    this.its["kube_relay_drift_found_total"].inc({ ...loopLabels(loop), kind }, found);
    this.its["kube_relay_drift_repaired_total"].inc({ ...loopLabels(loop), kind }, repaired);
  }

  /** A sync of Services was requested, or the sync loop started. */
  syncQueued(family: IpFamily, at: number): void {
    this.its["kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"]
      .set(of(family), at / 1000);
  }

  /** A sync ended, successfully or not. Without `full` it failed before that was known. */
  syncFinished(
    family: IpFamily,
    { seconds, full }: { readonly seconds: number; readonly full?: boolean },
  ): void {
    const { its } = this;
    its["kubeproxy_sync_proxy_rules_duration_seconds"].observe(of(family), seconds);
    if (full === undefined) return;
    its[`kubeproxy_sync_${full ? "full" : "partial"}_proxy_rules_duration_seconds`]
      .observe(of(family), seconds);
  }

  /**
   * `programmingSeconds` are the times since the control plane made each applied change of endpoints.
   * Modes with rules have the number of rules of each table.
   */
  syncSucceeded(
    family: IpFamily,
    { at, quarantined, programmingSeconds, noLocalEndpoints, rules = {} }: {
      readonly at: number;
      readonly quarantined: number;
      readonly programmingSeconds: readonly number[];
      readonly noLocalEndpoints: { readonly internal: number; readonly external: number };
      readonly rules?: NonNullable<SyncReport["rules"]>;
    },
  ): void {
    const { its } = this;
    its["kubeproxy_sync_proxy_rules_last_timestamp_seconds"].set(of(family), at / 1000);
    its["kube_relay_quarantined_service_ports"].set(of(family), quarantined);
    for (const seconds of programmingSeconds) {
      its["kubeproxy_network_programming_duration_seconds"].observe(of(family), seconds);
    }
    setEach(
      its["kubeproxy_sync_proxy_rules_no_local_endpoints_total"],
      "traffic_policy",
      noLocalEndpoints,
      family,
    );
    for (const [table, { total, last }] of Object.entries(rules)) {
      its["kubeproxy_sync_proxy_rules_iptables_total"].set({ ...of(family), table }, total);
      its["kubeproxy_sync_proxy_rules_iptables_last"].set({ ...of(family), table }, last);
    }
  }

  syncFailed(family: IpFamily): void {
    this.its["kube_relay_sync_failures_total"].inc(of(family));
  }

  /** Connection tracking was searched for stale flows. */
  conntrackReconciled(
    family: IpFamily,
    { seconds, deleted }: { readonly seconds: number; readonly deleted: number },
  ): void {
    this.its["kubeproxy_conntrack_reconciler_sync_duration_seconds"].observe(of(family), seconds);
    this.its["kubeproxy_conntrack_reconciler_deleted_entries_total"].inc(of(family), deleted);
  }

  /** Replaces the former totals. */
  setRuleCounters(family: IpFamily, totals: RuleCounters): void {
    const { its } = this;
    const { failedWrites, failedPartialWrites, failedCleanups } = totals;
    const { invalidDroppedPackets: invalid, localhostNodePortPackets: localhost } = totals;
    const sync = "kubeproxy_sync_proxy_rules";
    setCounter(its[`${sync}_iptables_restore_failures_total`], of(family), failedWrites);
    setCounter(
      its[`${sync}_iptables_partial_restore_failures_total`],
      of(family),
      failedPartialWrites,
    );
    setCounter(its[`${sync}_nftables_sync_failures_total`], of(family), failedWrites);
    setCounter(its[`${sync}_nftables_cleanup_failures_total`], of(family), failedCleanups);
    // Without a family, as upstream: nfacct has one counter for both.
    const packets = "kubeproxy_iptables";
    if (invalid !== undefined) {
      setCounter(its[`${packets}_ct_state_invalid_dropped_packets_total`], {}, invalid);
    }
    if (localhost !== undefined) {
      setCounter(its[`${packets}_localhost_nodeports_accepted_packets_total`], {}, localhost);
    }
  }

  /** Replaces the former totals. */
  setTraffic(family: IpFamily, totals: Readonly<TrafficCounters>): void {
    for (const [figure, name] of Object.entries(TRAFFIC)) {
      setCounter(
        this.its[`kube_relay_userspace_${name}_total`],
        of(family),
        totals[figure as keyof TrafficCounters],
      );
    }
  }

  /** Replaces the former figures. */
  setHealth(family: IpFamily, figures: HealthFigures): void {
    const { checksPassed: passed, checksFailed: failed, checksTimedOut: timeout } = figures;
    for (const [result, total] of Object.entries({ passed, failed, timeout })) {
      setCounter(
        this.its["kube_relay_userspace_health_checks_total"],
        { ...of(family), result },
        total,
      );
    }
    setCounter(this.its["kube_relay_userspace_ejections_total"], of(family), figures.ejections);
    const { healthy, unhealthy, ejected } = figures;
    const states = { healthy, unhealthy, ejected };
    setEach(this.its["kube_relay_userspace_endpoints"], "state", states, family);
  }

  /** Replaces the former figures; those of the families are added up, as upstream does. */
  setChanges(family: IpFamily, figures: {
    readonly servicesPending: number;
    readonly servicesTotal: number;
    readonly endpointsPending: number;
    readonly endpointsTotal: number;
  }): void {
    this.#changes.set(family, figures);
    for (const [name, object] of [["service", "services"], ["endpoint", "endpoints"]] as const) {
      const sum = (figure: "Pending" | "Total") =>
        this.#changes.values().reduce((total, each) => total + each[`${object}${figure}`], 0);
      const metric = `kubeproxy_sync_proxy_rules_${name}_changes` as const;
      this.its[`${metric}_pending`].set(sum("Pending"));
      setCounter(this.its[`${metric}_total`], {}, sum("Total"));
    }
  }

  /** Listening on a healthCheckNodePort failed. */
  healthBindFailed(): void {
    this.its["kube_relay_service_health_bind_failures_total"].inc();
  }

  /** The configuration file changed. */
  configReloaded(
    result: typeof METRICS["kube_relay_config_reloads_total"]["labels"]["result"][number],
  ): void {
    this.its["kube_relay_config_reloads_total"].inc({ result });
  }

  /** A request to the API server was answered, or had no answer. Watches are not measured. */
  apiAnswered({ method, host, status, seconds }: {
    readonly method: "GET" | "POST" | "PATCH";
    /** Host and port of the server. */
    readonly host: string;
    readonly status: number | undefined;
    readonly seconds?: number;
  }): void {
    // As client-go does. Anything but an HTTP status would be a series of its own.
    const isKnown = status !== undefined && status >= 100 && status <= 599;
    const code = isKnown ? String(status) : "<error>";
    this.its["rest_client_requests_total"].inc({ code, method, host });
    if (seconds === undefined) return;
    this.its["rest_client_request_duration_seconds"].observe({ verb: method, host }, seconds);
  }

  /**
   * Sets the seconds since the last data from the API server for a kind of object, or for the
   * connection, and the totals of repeated work, if they are known.
   */
  setSource(
    resource: string,
    ageSeconds?: number,
    repetitions?: { readonly watchFailures: number; readonly relists: number },
  ): void {
    const age = this.its["kube_relay_api_last_sign_of_life_age_seconds"];
    // Any unknown name would be a new series.
    const known = METRICS["kube_relay_api_last_sign_of_life_age_seconds"].labels.resource;
    const labels = { resource: known.find((each) => each === resource) ?? "other" };
    if (ageSeconds !== undefined) age.set(labels, ageSeconds);
    if (repetitions === undefined) return;
    setCounter(this.its["kube_relay_watch_failures_total"], labels, repetitions.watchFailures);
    setCounter(this.its["kube_relay_relists_total"], labels, repetitions.relists);
  }

  /** Replaces the former figures. Without workers there are no restarts. */
  setProcess(
    { limit, open, refused }: Pick<OpenFiles, "limit" | "open" | "refused">,
    { uncaughtErrors, workerRestarts }: { uncaughtErrors: number; workerRestarts?: number },
  ): void {
    this.its["process_max_fds"].set(limit);
    this.its["kube_relay_open_sockets"].set({ use: "listener" }, open.listeners);
    this.its["kube_relay_open_sockets"].set({ use: "traffic" }, open.traffic);
    for (const [use, count] of refused) {
      setCounter(this.its["kube_relay_refused_sockets_total"], { use }, count);
    }
    setCounter(this.its["kube_relay_uncaught_errors_total"], {}, uncaughtErrors);
    if (workerRestarts === undefined) return;
    setCounter(this.its["kube_relay_userspace_worker_restarts_total"], {}, workerRestarts);
  }

  /** Replaces the number of problems of each kind. */
  setProblems(counts: Readonly<Record<ProblemKind, number>>): void {
    for (const [kind, count] of Object.entries(counts)) {
      this.its["kube_relay_problems"].set({ kind }, count);
    }
  }

  /** Takes the size of the connection tracking table; `undefined` = the kernel has none. */
  setConntrack(size: { readonly entries: number; readonly limit: number } | undefined): void {
    const {
      kube_relay_conntrack_entries: entries,
      kube_relay_conntrack_limit: limit,
    } = this.its;
    for (const each of [entries, limit]) each.remove({});
    if (size === undefined) return;
    entries.set(size.entries);
    limit.set(size.limit);
  }

  /** Replaces the number of problems with NetworkPolicies of each kind. */
  setPolicyProblems(counts: Readonly<Record<"policy" | "pod", number>>): void {
    for (const [kind, count] of Object.entries(counts)) {
      this.its["kube_relay_network_policy_problems"].set({ kind }, count);
    }
  }

  /** Replaces the number of ClusterNetworkPolicies of each tier. */
  setClusterPolicies(counts: Readonly<Record<"Admin" | "Baseline", number>>): void {
    for (const [tier, count] of Object.entries(counts)) {
      this.its["kube_relay_cluster_network_policies"].set({ tier }, count);
    }
  }

  setPolicies(family: IpFamily, figures: {
    readonly policies: number;
    readonly isolated: Readonly<Record<Direction, number>>;
    readonly sets: number;
    readonly members: number;
  }): void {
    const { its } = this;
    its["kube_relay_network_policies"].set(of(family), figures.policies);
    its["kube_relay_network_policy_sets"].set(of(family), figures.sets);
    its["kube_relay_network_policy_set_members"].set(of(family), figures.members);
    const { isolated } = figures;
    setEach(its["kube_relay_network_policy_isolated_pods"], "direction", isolated, family);
  }

  /** Takes the packets that rules have denied so far; a direction that is left out keeps its value. */
  setDenied(family: IpFamily, packets: DeniedPackets): void {
    for (const [direction, count] of Object.entries(packets)) {
      const labels = { ...of(family), direction };
      setCounter(this.its["kube_relay_network_policy_denied_packets_total"], labels, count);
    }
  }

  /** Tracked connections were deleted, since NetworkPolicies no longer allow them. */
  connectionsCut(family: IpFamily, count: number): void {
    this.its["kube_relay_network_policy_connections_cut_total"].inc(of(family), count);
  }

  /** Replaces the series of all sessions; none while the daemon is silent. */
  setSessions(sessions: readonly BgpSessionFigures[]): void {
    const {
      kube_relay_routing_bgp_session_up: up,
      kube_relay_routing_bgp_prefixes: prefixes,
      kube_relay_routing_bgp_refused_updates: refused,
    } = this.its;
    for (const each of [up, prefixes, refused]) each.reset();
    for (const { peer, state, imported, exported, refusedUpdates } of sessions) {
      up.set({ peer }, Number(state === "Established"));
      prefixes.set({ peer, direction: "in" }, imported);
      prefixes.set({ peer, direction: "out" }, exported);
      refused.set({ peer }, refusedUpdates);
    }
  }

  setAnnounced(plan: BgpPlan | undefined): void {
    const announced = this.its["kube_relay_routing_announced_prefixes"];
    announced.reset();
    for (const { kind } of plan?.announced ?? []) announced.inc({ kind });
  }

  /** Nothing is exported without routes. */
  setPodRoutes(routes: readonly Pick<PodRoute, "tunnel">[]): void {
    const metric = this.its["kube_relay_routing_pod_routes"];
    metric.reset();
    if (routes.length === 0) return;
    const tunnels = routes.filter(({ tunnel }) => tunnel !== undefined).length;
    metric.set({ path: "tunnel" }, tunnels);
    metric.set({ path: "direct" }, routes.length - tunnels);
  }

  setPools(pools: readonly PoolUse[]): void {
    for (const { pool, family, size, used } of pools) {
      const labels = { pool: pool.name, ...of(family) };
      // Prometheus' numbers are doubles; an IPv6 pool may be larger than they can count exactly.
      this.its["kube_relay_routing_pool_addresses"].set(labels, Number(size));
      this.its["kube_relay_routing_pool_used_addresses"].set(labels, used);
    }
  }

  /** `undefined` = this process does not assign addresses. */
  setRefusals(count: number | undefined): void {
    this.its["kube_relay_routing_assigns"].set(Number(count !== undefined));
    this.its["kube_relay_routing_refused_services"].remove({});
    if (count !== undefined) this.its["kube_relay_routing_refused_services"].set(count);
  }
}

/** The metric of each total, between `kube_relay_userspace_` and `_total`. */
const TRAFFIC = {
  tcpAccepted: "tcp_connections",
  tcpRefused: "tcp_refused_connections",
  tcpDenied: "tcp_denied_connections",
  tcpLimited: "tcp_limited_connections",
  tcpExpired: "tcp_expired_connections",
  proxyHeaderErrors: "proxy_header_errors",
  serverNameErrors: "server_name_errors",
  tcpSilentClosed: "tcp_silent_closed_connections",
  dialFailures: "tcp_dial_failures",
  dialTimeouts: "tcp_dial_timeouts",
  udpFlows: "udp_flows",
  udpMoved: "udp_moved_flows",
  udpDropped: "udp_dropped_datagrams",
  udpDenied: "udp_denied_datagrams",
  udpLimited: "udp_limited_datagrams",
  udpExpired: "udp_expired_flows",
  udpForeignDropped: "udp_foreign_dropped_datagrams",
} as const satisfies Readonly<Record<keyof TrafficCounters, string>>;

function of(family: IpFamily): { "ip_family": IpFamily } {
  return { "ip_family": family };
}

function loopLabels({ controller, family }: LoopId) {
  return { controller, ...of(family) };
}

/** prom-client cannot set a counter to a total that is counted elsewhere. */
function setCounter(counter: Counter, labels: Record<string, string>, total: number): void {
  counter.remove(labels);
  counter.inc(labels, total);
}

function setEach(
  gauge: Gauge,
  label: string,
  values: Readonly<Record<string, number>>,
  family: IpFamily,
): void {
  for (const [each, value] of Object.entries(values)) {
    gauge.set({ ...of(family), [label]: each }, value);
  }
}

/**
 * Creates one instrument for each row. Those that the mode does not have exist but are not registered,
 * so callers do not need to check the mode. Only the families that run start at zero.
 */
function createInstruments(
  registry: Registry,
  { mode, families = IP_FAMILIES, hasRouting = false }: MetricsOptions,
): Instruments {
  const entries = Object.values<Metric>(METRICS).map((row) => {
    const { name, help, type, labels, buckets = [], startsAtZero = true } = row;
    const isServed = hasMetric(mode, row) && (hasRouting || !Object.hasOwn(ROUTING_METRICS, name));
    const registers = isServed ? [registry] : [];
    const options = { name, help, labelNames: Object.keys(labels), registers };
    if (type === "gauge") return [name, new Gauge(options)];
    const instrument = type === "counter"
      ? new Counter(options)
      : new Histogram({ ...options, buckets: [...buckets] });
    // A rate needs the zero before the first event. A gauge of zero may be a sync in 1970.
    const shown = startsAtZero && options.labelNames.length > 0
      ? combinations({ ...labels, ...(labels["ip_family"] && { "ip_family": families }) })
      : [];
    for (const each of shown) {
      if (instrument instanceof Counter) instrument.inc(each, 0);
      else instrument.zero(each);
    }
    return [name, instrument];
  });
  // The mapped type gives the class of each row; Object.fromEntries() cannot.
  return Object.fromEntries(entries) as Instruments;
}

function combinations(labels: Metric["labels"]): readonly Record<string, string>[] {
  return Object.entries(labels).reduce<readonly Record<string, string>[]>(
    (before, [name, values]) =>
      before.flatMap((each) => values.map((value) => ({ ...each, [name]: value }))),
    [{}],
  );
}

/** Sets the values that never change. */
function setFacts(its: Instruments, options: MetricsOptions): void {
  const { version, mode, families = IP_FAMILIES, featureGates = [], clock = systemClock } = options;
  its["kube_relay_build_info"].set({ version, mode, deno: Deno.version.deno }, 1);
  its["process_start_time_seconds"].set(clock.wallNow() / 1000);
  for (const { name, stage, enabled } of featureGates) {
    its["kubernetes_feature_enabled"].set({ name, stage }, Number(enabled));
  }
  for (const family of families) its["kube_relay_quarantined_service_ports"].set(of(family), 0);
  // prom-client starts every metric without labels at zero. These are absent instead: without nfacct, without
  // connection tracking, and in a process that does not assign addresses.
  its["kubeproxy_iptables_ct_state_invalid_dropped_packets_total"].remove({});
  its["kubeproxy_iptables_localhost_nodeports_accepted_packets_total"].remove({});
  its["kube_relay_conntrack_entries"].remove({});
  its["kube_relay_conntrack_limit"].remove({});
  its["kube_relay_routing_assigns"].remove({});
  its["kube_relay_routing_refused_services"].remove({});
}

/** Lines of one piece, about 0.5 ms of work. */
const PIECE_LINES = 512;

/**
 * Renders the counters of each Service, piece by piece, with a pause after each; nothing while the
 * table is empty.
 */
export async function* renderServiceSeries(
  table: ServiceTrafficTable,
  mode: BackendMode,
  pause: () => Promise<void>,
): AsyncGenerator<string, void, void> {
  if (table.rows().next().done) return;
  for (const row of Object.values(SERVICE_METRICS)) {
    if (!hasMetric(mode, row)) continue;
    const { name, help, type } = row;
    let head = `\n# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    let piece = "";
    let lines = 0;
    for (const port of table.rows()) {
      const value = port.traffic[SERVICE_FIGURES[name]!];
      if (value === undefined) continue;
      piece += `${head}${name}{${labelsOf(port)}} ${value}\n`;
      head = "";
      if (++lines % PIECE_LINES !== 0) continue;
      yield piece;
      piece = "";
      await pause();
    }
    yield piece;
  }
}

function labelsOf({ family, protocol, name }: ServiceTrafficRow): string {
  const labels = [
    ["namespace", name?.namespace ?? ""],
    ["service", name?.name ?? "other"],
    ["port_name", name?.port ?? ""],
    ["protocol", protocol],
    ["ip_family", family],
  ] as const;
  return labels.map(([label, value]) => `${label}="${escape(value)}"`).join(",");
}

/** A manifest may contain any text, which must not end its label or its line. */
function escape(value: string): string {
  return value.replace(/[\\"\n]/g, (character) => character === "\n" ? "\\n" : `\\${character}`);
}
