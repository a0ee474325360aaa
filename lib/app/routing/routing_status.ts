import type { RoutedService } from "../../api/kinds/routed_service.ts";
import type { ControllerStatus } from "../../engine/controller.ts";
import { type IpAddress, tryParseIpAddress } from "../../net/ip_address.ts";
import { poolUse } from "../../routing/address_pool.ts";
import type { BgpPeer, BgpPlan } from "../../routing/bgp_plan.ts";
import { acceptedText } from "../../routing/peer_imports.ts";
import type { PodNetworkPlan } from "../../routing/pod_network_plan.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { countText } from "../../log/count_text.ts";
import type { RefusedService } from "./address_assigner.ts";
import type { Layer2Part, OwnedAddressView } from "./layer2_part.ts";
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
  /** Services that lack what they ask for; known to the process that assigns. */
  readonly refused: readonly RefusedService[];
  readonly owned: readonly OwnedAddressView[];
  /** Nodes that cannot answer for addresses, or are configured otherwise. */
  readonly layer2Problems: Layer2Part["problems"];
  readonly bgp?: {
    readonly plan: BgpPlan;
    /** Or the reason why they are not known. */
    readonly sessions: readonly BgpSessionView[] | string;
  };
  /** Absent if kube-relay does nothing for the network of pods. */
  readonly pods?: PodNetworkPlan | undefined;
}

/** Most addresses and sessions that are named. */
const MOST_NAMED = 20;

type Facts = ControllerStatus["facts"];

/** The facts, each in one line. */
export function routingFacts(shown: ShownRouting): Facts {
  return [
    ...poolFacts(shown),
    ...leaseFacts(shown),
    ...refusalFacts(shown),
    ...ownerFacts(shown),
    ...limited(shown.layer2Problems, ({ node, text }) => ({
      name: "Layer 2",
      text: `node ${node}: ${text}`,
    })),
    ...bgpFacts(shown),
    ...podFacts(shown),
  ];
}

/** Describes the BGP daemon's plan. */
export function bgpSummary(plan: BgpPlan | undefined): string {
  if (!plan) return "BGP, the own Node is not known";
  const { localAs, peers, announced } = plan;
  return `BGP, AS ${localAs}, ${countText(peers.length, "peer")}, ` +
    `${announced.length} announced`;
}

/** Describes the plan of the network of pods. */
export function podSummary(plan: PodNetworkPlan | undefined): string {
  if (!plan) return "pod network, the own Node or its networks are not known";
  const { routes, tunnels } = plan;
  return `pod network, ${countText(routes.length, "route")}, ` +
    `${countText(tunnels.length, "tunnel")}`;
}

/** The addresses that Services have in their status. */
export function addressesInUse(services: Iterable<RoutedService>): ReadonlySet<IpAddress> {
  const used = new Set<IpAddress>();
  for (const { status } of services) {
    for (const { ip = "" } of status?.loadBalancer?.ingress ?? []) {
      const address = tryParseIpAddress(ip ?? "");
      if (address) used.add(address);
    }
  }
  return used;
}

function poolFacts({ settings: { pools }, services }: ShownRouting): Facts {
  if (pools.length === 0) return [{ name: "Pools", text: "none: no address is assigned" }];
  const byPool = Map.groupBy(
    poolUse(pools, addressesInUse(services.values())),
    ({ pool }) => pool,
  );
  return [...byPool].map(([{ name, announce }, uses]) => {
    const how = announce === "none" ? "not announced" : `announced by ${announce}`;
    const counts = uses.map(({ family, size, used }) => `${used} of ${size} ${family}`).join(", ");
    return { name: "Pool", text: `${name}: ${counts} in use, ${how}` };
  });
}

function refusalFacts({ refused }: ShownRouting): Facts {
  return limited(refused, ({ key, reasons }) => ({
    name: "Refused",
    text: `${key}: ${reasons.join("; ")}`,
  }));
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
  const { plan, sessions } = bgp;
  const byKind = Map.groupBy(plan.announced, ({ kind }) => kind);
  const kinds = [...byKind].map(([kind, { length }]) => `${length} ${kind}`).sort().join(", ");
  const announced = {
    name: "Announced",
    text: kinds === "" ? "nothing" : `${prefixesText(plan.announced.length)}: ${kinds}`,
  };
  if (typeof sessions === "string") {
    return [announced, { name: "Sessions", text: `unknown: ${sessions}` }];
  }
  const known = new Set(sessions.map(({ peer }) => peer));
  const missing = plan.peers.filter(({ name }) => !known.has(name));
  return [
    announced,
    ...limited(sessions, (session) => ({
      name: "Peer",
      text: sessionText(session, plan.peers.find(({ name }) => name === session.peer)),
    })),
    ...limited(missing, ({ name }) => ({ name: "Peer", text: `${name}: BIRD has no session yet` })),
  ];
}

function podFacts({ pods }: ShownRouting): Facts {
  if (!pods) return [];
  const { podCidrs, cni, masquerade, unrouted } = pods;
  return [
    { name: "Pods here", text: podCidrs.join(", ") || "no range" },
    ...(cni ? [{ name: "CNI configuration", text: cni.path }] : []),
    ...(masquerade
      ? [{ name: "Masquerade", text: "traffic of pods that leaves the cluster" }]
      : []),
    ...limited(unrouted, ({ node, reason }) => ({
      name: "No route",
      text: `${node}: ${reason}; --overlay would make a tunnel`,
    })),
  ];
}

function prefixesText(count: number): string {
  return count === 1 ? "1 prefix" : `${count} prefixes`;
}

function sessionText(
  { peer, description, imported, exported, refusedUpdates }: BgpSessionView,
  planned: BgpPeer | undefined,
): string {
  const name = planned ? `${peer} (${planned.address}, AS ${planned.as})` : peer;
  const refused = refusedUpdates > 0 ? `, ${refusedUpdates} updates refused` : "";
  const accepted = planned && acceptedText(planned);
  const accepts = accepted === undefined ? "" : `; accepts ${accepted}`;
  return `${name}: ${description}; ${
    prefixesText(exported)
  } out, ${imported} in${refused}${accepts}`;
}

function limited<Item>(
  items: readonly Item[],
  factOf: (item: Item) => Facts[number],
): Facts {
  const facts = items.slice(0, MOST_NAMED).map(factOf);
  const more = items.length - facts.length;
  return more > 0 ? [...facts, { name: "", text: `and ${more} more` }] : facts;
}
