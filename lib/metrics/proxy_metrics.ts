/**
 * The metrics of the process: typed methods over the instruments of prom-client.
 *
 * prom-client's default metrics are not used: they read `/proc`, which Deno opens only with all
 * permissions. `process_open_fds` and `process_virtual_memory_bytes` need it and are left out.
 *
 * @module
 */
import { cpuUsage } from "node:process";
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import { type Clock, systemClock } from "../os/clock.ts";
import type { BackendMode } from "../proxy/backend.ts";
import type { ServiceTrafficRow, ServiceTrafficTable } from "../proxy/service_traffic.ts";
import { createInstruments, type Instruments, setCounter } from "./instruments.ts";
import { type LoopInstruments, loopInstruments } from "./loop_instruments.ts";
import type { Metric } from "./metric.ts";
import { METRICS } from "./metric_table.ts";
import { type PolicyInstruments, policyInstruments } from "./policy_instruments.ts";
import { type ProcessInstruments, processInstruments } from "./process_instruments.ts";
import { Registry } from "./prom_client.ts";
import { type RoutingInstruments, routingInstruments } from "./routing_instruments.ts";
import { ROUTING_METRICS } from "./routing_metrics.ts";
import { SERVICE_METRICS } from "./service_metrics.ts";
import { type SyncInstruments, syncInstruments } from "./sync_instruments.ts";

/** A feature gate and its value. */
interface FeatureGateState {
  readonly name: string;
  /** The empty string for a generally available gate, as upstream spells it. */
  readonly stage: typeof METRICS.featureEnabled.labels.stage[number];
  readonly enabled: boolean;
}

/** The build info and the start time of the process. */
interface MetricsOptions {
  /** Version of kube-relay. */
  readonly version: string;
  readonly mode: BackendMode;
  /** The IP families that run; no series of another one exists. @default {both} */
  readonly families?: readonly IpFamily[];
  /** @default {[]} */
  readonly featureGates?: readonly FeatureGateState[];
  /** Counters of each Service; absent = Services are not counted. */
  readonly traffic?: ServiceTrafficTable;
  /** @default {systemClock} */
  readonly clock?: Clock;
}

/** Records events and renders them as Prometheus text. */
export interface ProxyMetrics extends SyncInstruments, ProcessInstruments {
  /** Counts the syncs of all controllers. */
  readonly loops: LoopInstruments;
  readonly policies: PolicyInstruments;
  readonly routing: RoutingInstruments;
  /** Renders all metrics except those of each Service. */
  render(): Promise<{ readonly contentType: string; readonly body: string }>;
  /** Renders the rest in pieces; `undefined` if Services are not counted. */
  renderServices(): AsyncIterable<string> | undefined;
}

/** Creates the metrics of one process, all at zero. */
export function createProxyMetrics(options: MetricsOptions): ProxyMetrics {
  const registry = new Registry();
  const { clock = systemClock, mode, families = IP_FAMILIES, traffic } = options;
  const its = createInstruments(registry, mode, families);
  setFacts(its, { ...options, families });
  return {
    ...syncInstruments(its),
    ...processInstruments(its),
    loops: loopInstruments(its),
    policies: policyInstruments(its),
    routing: routingInstruments(its, () => {
      for (const key of Object.keys(ROUTING_METRICS) as (keyof typeof ROUTING_METRICS)[]) {
        registry.registerMetric(its[key]);
      }
    }),
    async render() {
      const { user, system } = cpuUsage();
      setCounter(its.processCpu, {}, (user + system) / 1e6);
      its.processMemory.set(Deno.memoryUsage().rss);
      return { contentType: registry.contentType, body: await registry.metrics() };
    },
    renderServices: () =>
      traffic && renderServiceSeries(traffic, { mode, pause: () => clock.yieldToEventLoop() }),
  };
}

/** Sets the values that never change. */
function setFacts(
  its: Instruments,
  options: MetricsOptions & { readonly families: readonly IpFamily[] },
): void {
  const { version, mode, families, featureGates = [], clock = systemClock } = options;
  its.buildInfo.set({ version, mode, deno: Deno.version.deno }, 1);
  its.kubernetesBuildInfo.set(kubernetesVersion(version), 1);
  its.processStart.set(clock.wallNow() / 1000);
  for (const { name, stage, enabled } of featureGates) {
    its.featureEnabled.set({ name, stage }, Number(enabled));
  }
  for (const family of families) {
    its.quarantined.set({ "ip_family": family }, 0);
  }
  // Absent, not zero, if nfacct is missing; prom-client starts every metric without labels at zero.
  its.invalidDropped.remove({});
  its.localhostNodePorts.remove({});
}

function kubernetesVersion(version: string) {
  const { major, minor } = METRICS.kubernetesBuildInfo.labels;
  return {
    major: major[0],
    minor: minor[0],
    git_version: `v${major[0]}.${minor[0]}.0+kube-relay-${version}`,
    platform: `${Deno.build.os}/${Deno.build.arch === "x86_64" ? "amd64" : "arm64"}`,
  };
}

/** Lines of one piece, about 0.5 ms of work. */
const PIECE_LINES = 512;

/**
 * Renders the counters of each Service, piece by piece, with a pause after each; nothing while the
 * table is empty.
 */
export async function* renderServiceSeries(
  table: ServiceTrafficTable,
  { mode, pause }: { readonly mode: BackendMode; readonly pause: () => Promise<void> },
): AsyncGenerator<string, void, void> {
  if (table.rows().next().done) return;
  for (const key of Object.keys(SERVICE_METRICS) as (keyof typeof SERVICE_METRICS)[]) {
    const { name, help, type, modes }: Metric = SERVICE_METRICS[key];
    if (modes !== undefined && !modes.includes(mode)) continue;
    let head = `\n# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    let piece = "";
    let lines = 0;
    for (const row of table.rows()) {
      const value = row.traffic[key];
      if (value === undefined) continue;
      piece += `${head}${name}{${labelsOf(row)}} ${value}\n`;
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
