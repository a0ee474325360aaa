/**
 * The metrics of the process: typed methods over the instruments of prom-client.
 *
 * prom-client's default metrics are not used: they read `/proc`, which Deno opens to nothing short of
 * all permissions. `process_open_fds` cannot be had without it and is left out.
 *
 * @module
 */
import { cpuUsage } from "node:process";
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { IpFamily } from "../net/ip_address.ts";
import { type Clock, systemClock } from "../os/clock.ts";
import type { TrafficCounters } from "../proxy/backend.ts";
import { type Metric, type MetricKey, METRICS } from "./metric_table.ts";

/** Figures of one successful sync. */
export interface SyncFigures {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly quarantined: number;
  /** For each change of endpoints that was brought about: seconds since the control plane made it. */
  readonly programmingSeconds: readonly number[];
  readonly noLocalEndpoints: { readonly internal: number; readonly external: number };
}

/** How far one family is with the changes of objects. */
export interface ChangeFigures {
  readonly servicesPending: number;
  /** Since the process began. */
  readonly servicesTotal: number;
  readonly endpointsPending: number;
  /** Since the process began. */
  readonly endpointsTotal: number;
}

/** What the build info says, and when the process began. */
export interface MetricsOptions {
  /** Version of kube-relay. */
  readonly version: string;
  readonly mode: string;
  /** @default {systemClock} */
  readonly clock?: Clock;
}

/** Takes what happens and writes it as Prometheus text. */
export interface ProxyMetrics {
  /** A sync was asked for; milliseconds since 1970. */
  syncQueued(family: IpFamily, at: number): void;
  /** A sync has ended, well or not. */
  syncFinished(family: IpFamily, seconds: number): void;
  syncSucceeded(family: IpFamily, figures: SyncFigures): void;
  syncFailed(family: IpFamily): void;
  /** Figures replace those told before; those of the families are added up, as upstream does. */
  setChanges(family: IpFamily, figures: ChangeFigures): void;
  healthAnswered(path: "healthz" | "livez", code: 200 | 503): void;
  /** Seconds since the API server was last heard of, by a kind of object or the connection itself. */
  setSourceAge(resource: string, seconds: number): void;
  /** Totals of what had to be done again; they replace those told before. */
  setRepetitions(
    resource: string,
    totals: { readonly watchFailures: number; readonly relists: number },
  ): void;
  /** Totals replace those told before. */
  setTraffic(family: IpFamily, totals: Readonly<TrafficCounters>): void;
  setLargestEventLoopDelay(seconds: number): void;
  /** Everything as text. */
  render(): Promise<{ readonly contentType: string; readonly body: string }>;
}

/** The metrics of one process, all at zero. */
export function createProxyMetrics(
  { version, mode, clock = systemClock }: MetricsOptions,
): ProxyMetrics {
  const registry = new Registry();
  const its = createInstruments(registry);
  its.buildInfo.set({ version, mode, deno: Deno.version.deno }, 1);
  its.kubernetesBuildInfo.set(kubernetesVersion(version), 1);
  its.processStart.set(clock.wallNow() / 1000);
  showZeros(its);
  return {
    ...syncMethods(its),
    ...changeMethods(its),
    ...sourceMethods(its),
    ...trafficMethods(its),
    async render() {
      const { user, system } = cpuUsage();
      setCounter(its.processCpu, {}, (user + system) / 1e6);
      its.processMemory.set(Deno.memoryUsage().rss);
      return { contentType: registry.contentType, body: await registry.metrics() };
    },
  };
}

type InstrumentOf<Row extends Metric> = Row["type"] extends "counter" ? Counter
  : Row["type"] extends "gauge" ? Gauge
  : Histogram;

type Instruments = { readonly [Key in MetricKey]: InstrumentOf<typeof METRICS[Key]> };

function createInstruments(registry: Registry): Instruments {
  const entries = Object.entries<Metric>(METRICS)
    .map(([key, row]) => [key, createInstrument(registry, row)]);
  // The mapped type says which class each row becomes; Object.fromEntries() cannot.
  return Object.fromEntries(entries) as Instruments;
}

function createInstrument(registry: Registry, row: Metric): Counter | Gauge | Histogram {
  const { name, help, type, labels = {}, buckets = [] } = row;
  const options = { name, help, labelNames: Object.keys(labels), registers: [registry] };
  if (type === "counter") return new Counter(options);
  return type === "gauge"
    ? new Gauge(options)
    : new Histogram({ ...options, buckets: [...buckets] });
}

/** A rate needs the zero before the first event; upstream shows these too. */
function showZeros(its: Instruments): void {
  for (const code of METRICS.healthzAnswers.labels.code) {
    its.healthzAnswers.inc({ code }, 0);
    its.livezAnswers.inc({ code }, 0);
  }
  for (const family of METRICS.syncFailures.labels.ip_family) {
    its.syncFailures.inc({ "ip_family": family }, 0);
    its.quarantined.set({ "ip_family": family }, 0);
  }
}

function syncMethods(its: Instruments) {
  return {
    syncQueued(family: IpFamily, at: number) {
      its.lastQueued.set({ "ip_family": family }, at / 1000);
    },
    syncFinished(family: IpFamily, seconds: number) {
      its.syncDuration.observe({ "ip_family": family }, seconds);
    },
    syncSucceeded(family: IpFamily, figures: SyncFigures) {
      const labels = { "ip_family": family };
      its.lastSynced.set(labels, figures.at / 1000);
      its.quarantined.set(labels, figures.quarantined);
      for (const seconds of figures.programmingSeconds) {
        its.programmingDuration.observe(labels, seconds);
      }
      for (const [policy, count] of Object.entries(figures.noLocalEndpoints)) {
        its.noLocalEndpoints.set({ ...labels, traffic_policy: policy }, count);
      }
    },
    syncFailed: (family: IpFamily) => its.syncFailures.inc({ "ip_family": family }),
  };
}

function changeMethods(its: Instruments) {
  const families = new Map<IpFamily, ChangeFigures>();
  const sum = (key: keyof ChangeFigures) =>
    families.values().reduce((total, figures) => total + figures[key], 0);
  return {
    setChanges(family: IpFamily, figures: ChangeFigures) {
      families.set(family, figures);
      its.serviceChangesPending.set(sum("servicesPending"));
      its.endpointChangesPending.set(sum("endpointsPending"));
      setCounter(its.serviceChanges, {}, sum("servicesTotal"));
      setCounter(its.endpointChanges, {}, sum("endpointsTotal"));
    },
  };
}

function sourceMethods(its: Instruments) {
  return {
    setSourceAge(resource: string, seconds: number) {
      its.apiSilence.set({ resource: knownResource(resource) }, seconds);
    },
    setRepetitions(
      resource: string,
      totals: { readonly watchFailures: number; readonly relists: number },
    ) {
      const labels = { resource: knownResource(resource) };
      setCounter(its.watchFailures, labels, totals.watchFailures);
      setCounter(its.relists, labels, totals.relists);
    },
    setLargestEventLoopDelay: (seconds: number) => its.eventLoopDelay.set(seconds),
    healthAnswered(path: "healthz" | "livez", code: 200 | 503) {
      const counter = path === "healthz" ? its.healthzAnswers : its.livezAnswers;
      counter.inc({ code: String(code) });
    },
  };
}

function trafficMethods(its: Instruments) {
  return {
    setTraffic(family: IpFamily, totals: Readonly<TrafficCounters>) {
      const counters: Readonly<Record<keyof TrafficCounters, Counter>> = its;
      for (const [key, total] of Object.entries(totals) as [keyof TrafficCounters, number][]) {
        setCounter(counters[key], { "ip_family": family }, total);
      }
    },
  };
}

/** prom-client has no way to set a counter to a total that is counted elsewhere. */
function setCounter(counter: Counter, labels: Record<string, string>, total: number): void {
  counter.remove(labels);
  counter.inc(labels, total);
}

/** Any other name would be a new series. */
function knownResource(resource: string): string {
  const known: readonly string[] = METRICS.apiSilence.labels.resource;
  return known.includes(resource) ? resource : "other";
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
