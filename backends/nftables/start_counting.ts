/**
 * Counting, or not: with `--service-counters` only.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { FamilyTraffic, TrafficFigures } from "../../lib/proxy/service_traffic.ts";
import type { OneAtATime } from "../../lib/os/one_at_a_time.ts";
import { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { countingTable } from "./counting_table.ts";
import { TrafficCounters, type TrafficCountersDependencies } from "./traffic_counters.ts";

/** What counting stands on, if it was asked for. */
type CountingDependencies =
  & Omit<TrafficCountersDependencies, "traffic">
  & Partial<Pick<TrafficCountersDependencies, "traffic">>;

/**
 * The counters of a family; `undefined` = nobody asked for them, and a table that an earlier run left
 * is taken away, as every packet would pay for it.
 */
export async function startCounting(
  { traffic, ...dependencies }: CountingDependencies,
  { family, turns }: { readonly family: IpFamily; readonly turns: OneAtATime },
): Promise<TrafficCounters | undefined> {
  if (traffic) return new TrafficCounters({ ...dependencies, traffic }, { family, turns });
  const runner = new NftRunner(dependencies, countingTable(family));
  if (await runner.isThere()) await runner.remove();
  return undefined;
}

/** What was counted for a ServicePort; `undefined` = nothing, or it has no counters of its own. */
export function countedFor(
  { name }: Pick<ServicePlan, "name">,
  traffic: FamilyTraffic | undefined,
): TrafficFigures | undefined {
  const counted = traffic?.get(name);
  if (counted === undefined) return undefined;
  const { bytesFromClients, bytesToClients, packetsFromClients, packetsToClients } = counted;
  return { bytesFromClients, bytesToClients, packetsFromClients, packetsToClients };
}
