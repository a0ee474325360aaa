/**
 * Metrics of addresses and routes.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import type { Instruments } from "./instruments.ts";

/** The figures of BGP. */
interface BgpFigures {
  readonly announced: number;
  readonly peers: number;
  readonly established: number;
}

/** Collects the figures of the controller of addresses and routes. */
export interface RoutingInstruments {
  /** Counts a write of the status of a Service. */
  statusWritten(outcome: "written" | "conflict" | "failed"): void;
  setLayer2Addresses(family: IpFamily, count: number): void;
  /** Counts an address that this node began to answer for, or no longer does. */
  layer2Moved(family: IpFamily, change: "gained" | "lost"): void;
  setBgp(figures: BgpFigures): void;
}

/** The methods over the instruments. */
export function routingInstruments(its: Instruments): RoutingInstruments {
  return {
    statusWritten: (outcome) => its.routingStatusWrites.inc({ outcome }),
    setLayer2Addresses: (family, count) =>
      its.routingLayer2Addresses.set({ "ip_family": family }, count),
    layer2Moved: (family, change) => its.routingLayer2Moves.inc({ "ip_family": family, change }),
    setBgp({ announced, peers, established }) {
      its.routingBgpPrefixes.set(announced);
      its.routingBgpSessions.set({ state: "established" }, established);
      its.routingBgpSessions.set({ state: "down" }, peers - established);
    },
  };
}
