/**
 * The status of addresses and routes, for `status` and dumps.
 *
 * @module
 */
import type { RoutedService } from "../../api/kinds/routed_service.ts";
import type { ControllerStatus, DumpSection } from "../../controller/controller.ts";
import { addressAt, tryParseIpAddress } from "../../net/ip_address.ts";
import { poolOf } from "../../routing/address_pool.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { countText } from "../status/number_texts.ts";
import { DUMPED_ROUTING } from "../dump/dump_routing.ts";
import type { OwnedAddressView } from "./layer2_part.ts";
import type { LeaseHolder } from "./lease_holder.ts";
import type { BgpSessionView } from "./routing_backends.ts";

/** The state of the controller that status shows. */
export interface ShownRouting {
  readonly settings: RoutingSettings;
  readonly services: { values(): Iterable<RoutedService> };
  /** Absent without pools, or without an API server. */
  readonly leases: {
    readonly node: Pick<LeaseHolder, "isHeld" | "problem"> | undefined;
    readonly allocator: Pick<LeaseHolder, "isHeld" | "holder" | "problem">;
    /** Why the status of Services cannot be written. */
    readonly writing: string | undefined;
  } | undefined;
  readonly owned: readonly OwnedAddressView[];
  readonly bgp?: {
    readonly plan: BgpPlan;
    /** Or the reason why they are not known. */
    readonly sessions: readonly BgpSessionView[] | string;
  };
}

/** Most addresses and sessions that are named. */
const MOST_NAMED = 20;

type Facts = ControllerStatus["facts"];

/** The facts, each in one line. */
export function routingFacts(shown: ShownRouting): Facts {
  return [...poolFacts(shown), ...leaseFacts(shown), ...ownerFacts(shown), ...bgpFacts(shown)];
}

/** Describes the BGP daemon's plan. */
export function bgpSummary(plan: BgpPlan | undefined): string {
  if (!plan) return "BGP, the own Node is not known";
  const { localAs, peers, announced } = plan;
  return `BGP, AS ${localAs}, ${countText(peers.length, "peer")}, ` +
    `${announced.length} announced`;
}

function poolFacts({ settings: { pools }, services }: ShownRouting): Facts {
  if (pools.length === 0) return [{ name: "Pools", text: "none: no address is assigned" }];
  const used = new Map<string, Set<string>>();
  for (const { status } of services.values()) {
    for (const { ip = "" } of status?.loadBalancer?.ingress ?? []) {
      const address = tryParseIpAddress(ip);
      const pool = address && poolOf(pools, address);
      if (pool) used.getOrInsertComputed(pool.name, () => new Set()).add(address);
    }
  }
  return pools.map(({ name, announce }) => {
    const count = used.get(name)?.size ?? 0;
    const how = announce === "none" ? "not announced" : `announced by ${announce}`;
    return { name: "Pool", text: `${name}: ${countText(count, "address")} in use, ${how}` };
  });
}

function leaseFacts({ leases }: ShownRouting): Facts {
  if (!leases) return [];
  const { node, allocator, writing } = leases;
  const leader = allocator.isHeld ? "this node" : allocator.holder ?? "none yet";
  const problem = writing ?? allocator.problem;
  return [
    { name: "Allocator", text: leader + (problem === undefined ? "" : `; ${problem}`) },
    ...(node && !node.isHeld
      ? [{ name: "Lease", text: `this node does not hold its Lease: ${node.problem ?? "waiting"}` }]
      : []),
  ];
}

function ownerFacts({ owned }: ShownRouting): Facts {
  return limited(owned, ({ address, owner, services, candidates }) => {
    const reasons = candidates.map(({ node, obstacle }) => `${node}: ${obstacle}`).slice(0, 3);
    const text = owner ?? `no node (${reasons.join("; ")})`;
    return { name: "Layer 2", text: `${address} of ${services.join(", ")}: ${text}` };
  });
}

function bgpFacts({ bgp }: ShownRouting): Facts {
  if (!bgp) return [];
  const { sessions } = bgp;
  if (typeof sessions === "string") return [{ name: "Sessions", text: `unknown: ${sessions}` }];
  return limited(sessions, ({ peer, description }) => ({
    name: "Session",
    text: `${peer}: ${description}`,
  }));
}

function limited<Item>(
  items: readonly Item[],
  factOf: (item: Item) => Facts[number],
): Facts {
  const facts = items.slice(0, MOST_NAMED).map(factOf);
  const more = items.length - facts.length;
  return more > 0 ? [...facts, { name: "", text: `and ${more} more` }] : facts;
}

/** Returns the section that a dump adds to the objects. */
export function dumpedRouting(settings: RoutingSettings): DumpSection {
  const pools = settings.pools.map(({ ranges, ...pool }) => ({
    ...pool,
    ranges: ranges.map(({ family, first, last }) =>
      `${addressAt(first, family)}-${addressAt(last, family)}`
    ),
  }));
  return { schema: DUMPED_ROUTING, value: { ...settings, pools } };
}
