/**
 * Metrics of load balancer addresses and routes.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import type { PoolUse } from "../routing/address_pool.ts";
import type { BgpPlan, BgpSessionFigures } from "../routing/bgp_plan.ts";
import type { PodRoute } from "../routing/pod_network_plan.ts";
import type { Instruments } from "./instruments.ts";

/** Collects the figures of the routing controller. */
export interface RoutingInstruments {
  /** Replaces the series of all sessions; none while the daemon is silent. */
  setSessions(sessions: readonly BgpSessionFigures[]): void;
  setAnnounced(plan: BgpPlan | undefined): void;
  /** Nothing is exported without routes. */
  setPodRoutes(routes: readonly Pick<PodRoute, "tunnel">[]): void;
  setLayer2Addresses(family: IpFamily, count: number): void;
  /** Counts an address that this node began to answer for, or no longer does. */
  layer2Moved(family: IpFamily, change: "gained" | "lost"): void;
  setPools(pools: readonly PoolUse[]): void;
  /** `undefined` = this process does not assign addresses. */
  setRefusals(count: number | undefined): void;
  /** Counts a write of the status of a Service. */
  statusWritten(outcome: "written" | "conflict" | "failed"): void;
}

/** The methods over the instruments. `register` is called before the first value is set. */
export function routingInstruments(all: Instruments, register: () => void): RoutingInstruments {
  // prom-client starts metrics without labels at zero, which only the process that assigns has.
  all.routingAssigns.remove({});
  all.routingRefusals.remove({});
  let isRegistered = false;
  const own = (): Instruments => {
    if (!isRegistered) register();
    isRegistered = true;
    return all;
  };
  return {
    setSessions(sessions) {
      const its = own();
      for (const each of [its.routingSessionUp, its.routingPrefixes, its.routingRefusedUpdates]) {
        each.reset();
      }
      for (const { peer, state, imported, exported, refusedUpdates } of sessions) {
        its.routingSessionUp.set({ peer }, Number(state === "Established"));
        its.routingPrefixes.set({ peer, direction: "in" }, imported);
        its.routingPrefixes.set({ peer, direction: "out" }, exported);
        its.routingRefusedUpdates.set({ peer }, refusedUpdates);
      }
    },
    setAnnounced(plan) {
      own().routingAnnounced.reset();
      const byKind = Map.groupBy(plan?.announced ?? [], ({ kind }) => kind);
      for (const [kind, { length }] of byKind) own().routingAnnounced.set({ kind }, length);
    },
    setPodRoutes(routes) {
      all.routingPodRoutes.reset();
      if (routes.length === 0) return;
      const tunnels = routes.filter(({ tunnel }) => tunnel !== undefined).length;
      own().routingPodRoutes.set({ path: "tunnel" }, tunnels);
      own().routingPodRoutes.set({ path: "direct" }, routes.length - tunnels);
    },
    setLayer2Addresses: (family, count) =>
      own().routingLayer2Addresses.set({ "ip_family": family }, count),
    layer2Moved: (family, change) => own().routingLayer2Moves.inc({ "ip_family": family, change }),
    setPools(pools) {
      for (const { pool, family, size, used } of pools) {
        const labels = { pool: pool.name, "ip_family": family };
        // Prometheus' numbers are doubles; an IPv6 pool may be larger than they can count exactly.
        own().routingPoolAddresses.set(labels, Number(size));
        own().routingPoolUsed.set(labels, used);
      }
    },
    setRefusals(count) {
      own().routingAssigns.set(Number(count !== undefined));
      own().routingRefusals.remove({});
      if (count !== undefined) own().routingRefusals.set(count);
    },
    statusWritten: (outcome) => own().routingStatusWrites.inc({ outcome }),
  };
}
