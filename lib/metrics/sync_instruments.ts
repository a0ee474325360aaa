import type { Counter } from "prom-client";
import type { IpFamily } from "../net/ip_address.ts";
import type { HealthFigures, RuleCounters, TrafficCounters } from "../proxy/backend.ts";
import type { SyncReport } from "../proxy/data_plane.ts";
import { type Instruments, setCounter } from "./instruments.ts";

/** Figures of one successful sync. */
interface SyncFigures {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly quarantined: number;
  /** For each applied change of endpoints: seconds since the control plane made it. */
  readonly programmingSeconds: readonly number[];
  readonly noLocalEndpoints: { readonly internal: number; readonly external: number };
  /** Number of rules of each table, in modes with rules. */
  readonly rules?: SyncReport["rules"];
}

/** The duration of one sync, successful or not. */
interface SyncDuration {
  readonly seconds: number;
  /** Whether everything was compared; `undefined` = it failed before that was known. */
  readonly full?: boolean;
}

/** Records syncs and the counters of their backends. */
export interface SyncInstruments {
  /** A sync was requested, or the sync loop started; milliseconds since 1970. */
  syncQueued(family: IpFamily, at: number): void;
  /** A sync ended, successfully or not. */
  syncFinished(family: IpFamily, duration: SyncDuration): void;
  syncSucceeded(family: IpFamily, figures: SyncFigures): void;
  syncFailed(family: IpFamily): void;
  /** Connection tracking was searched for stale flows. */
  conntrackReconciled(
    family: IpFamily,
    figures: { readonly seconds: number; readonly deleted: number },
  ): void;
  /** Replaces the former totals. */
  setRuleCounters(family: IpFamily, totals: RuleCounters): void;
  /** Replaces the former totals. */
  setTraffic(family: IpFamily, totals: Readonly<TrafficCounters>): void;
  /** Replaces the former figures. */
  setHealth(family: IpFamily, figures: HealthFigures): void;
}

/** Creates the methods on the instruments. */
export function syncInstruments(its: Instruments): SyncInstruments {
  return { ...syncMethods(its), ...repairMethods(its), ...totalMethods(its) };
}

function syncMethods(its: Instruments) {
  return {
    syncQueued(family: IpFamily, at: number) {
      its.lastQueued.set({ "ip_family": family }, at / 1000);
    },
    syncFinished(family: IpFamily, { seconds, full }: SyncDuration) {
      const labels = { "ip_family": family };
      its.syncDuration.observe(labels, seconds);
      if (full === undefined) return;
      (full ? its.fullSyncDuration : its.partialSyncDuration).observe(labels, seconds);
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
      for (const [table, { total, last }] of Object.entries(figures.rules ?? {})) {
        its.iptablesRules.set({ ...labels, table }, total);
        its.iptablesRulesWritten.set({ ...labels, table }, last);
      }
    },
    syncFailed: (family: IpFamily) => its.syncFailures.inc({ "ip_family": family }),
  };
}

function repairMethods(its: Instruments) {
  return {
    conntrackReconciled(
      family: IpFamily,
      { seconds, deleted }: { readonly seconds: number; readonly deleted: number },
    ) {
      its.conntrackDuration.observe({ "ip_family": family }, seconds);
      its.conntrackDeleted.inc({ "ip_family": family }, deleted);
    },
  };
}

function totalMethods(its: Instruments) {
  return {
    setRuleCounters(family: IpFamily, totals: RuleCounters) {
      const labels = { "ip_family": family };
      const { failedWrites, failedPartialWrites, failedCleanups } = totals;
      const { invalidDroppedPackets, localhostNodePortPackets } = totals;
      setCounter(its.restoreFailures, labels, failedWrites);
      setCounter(its.partialRestoreFailures, labels, failedPartialWrites);
      setCounter(its.nftablesSyncFailures, labels, failedWrites);
      setCounter(its.nftablesCleanupFailures, labels, failedCleanups);
      // Without a family, as upstream: nfacct has one counter for both.
      if (invalidDroppedPackets !== undefined) {
        setCounter(its.invalidDropped, {}, invalidDroppedPackets);
      }
      if (localhostNodePortPackets !== undefined) {
        setCounter(its.localhostNodePorts, {}, localhostNodePortPackets);
      }
    },
    setTraffic(family: IpFamily, totals: Readonly<TrafficCounters>) {
      const counters: Readonly<Record<keyof TrafficCounters, Counter>> = its;
      for (const [key, total] of Object.entries(totals) as [keyof TrafficCounters, number][]) {
        setCounter(counters[key], { "ip_family": family }, total);
      }
    },
    setHealth(family: IpFamily, figures: HealthFigures) {
      const { checksPassed: passed, checksFailed: failed, checksTimedOut: timeout } = figures;
      for (const [result, total] of Object.entries({ passed, failed, timeout })) {
        setCounter(its.healthChecks, { "ip_family": family, result }, total);
      }
      setCounter(its.ejections, { "ip_family": family }, figures.ejections);
      const { healthy, unhealthy, ejected } = figures;
      for (const [state, count] of Object.entries({ healthy, unhealthy, ejected })) {
        its.endpointHealth.set({ "ip_family": family, state }, count);
      }
    },
  };
}
