/**
 * Compares two plans of addresses and routes, for the tools. Pure.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { BgpPeer } from "./bgp_plan.ts";
import type { PlannedRouting } from "./planned_routing.ts";

/** A difference between two plans. */
export interface PlannedRoutingChange {
  readonly object: "address" | "owner" | "peer" | "announcement";
  /** A Service, an address, a peer or a prefix. */
  readonly name: string;
  /** Absent = nothing. */
  readonly before?: string;
  readonly after?: string;
  /** Why there is nothing afterwards. */
  readonly reason?: string;
}

/**
 * Returns the addresses of Services that would change, the nodes that would answer for addresses of
 * layer 2, and the sessions and announcements of this node.
 */
export function comparePlannedRouting(
  before: PlannedRouting,
  after: PlannedRouting,
): readonly PlannedRoutingChange[] {
  const announcements = changesOf("announcement", announcedOf(before), announcedOf(after));
  return [
    ...changesOf("address", addressesOf(before), addressesOf(after)),
    ...changesOf("owner", ownersOf(before), ownersOf(after)),
    ...changesOf("peer", peersOf(before), peersOf(after)),
    ...announcements.map((change) => {
      if (change.after !== undefined) return change;
      const sources = after.bgp?.sourcesOf(change.name as Cidr) ?? [];
      const reasons = new Set(sources.flatMap(({ obstacle }) => obstacle ?? []));
      return { ...change, ...(reasons.size > 0 && { reason: [...reasons].join("; ") }) };
    }),
  ];
}

function changesOf(
  object: PlannedRoutingChange["object"],
  before: ReadonlyMap<string, string>,
  after: ReadonlyMap<string, string>,
): readonly PlannedRoutingChange[] {
  const names = [...new Set([...before.keys(), ...after.keys()])].sort();
  return names.flatMap((name) => {
    const [was, is] = [before.get(name), after.get(name)];
    if (was === is) return [];
    return [{
      ...{ object, name },
      ...(was !== undefined && { before: was }),
      ...(is !== undefined && { after: is }),
    }];
  });
}

/** The addresses of each Service that has one, or that asks in vain. */
function addressesOf(planned: PlannedRouting): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  for (const [service, addresses] of planned.statuses) {
    const refusals = planned.refusalsOf(service).join("; ");
    const words = [...addresses, ...(refusals === "" ? [] : [`refused: ${refusals}`])];
    if (words.length > 0) texts.set(service, words.join(", "));
  }
  return texts;
}

function ownersOf({ owners }: PlannedRouting): ReadonlyMap<string, string> {
  return new Map(
    [...owners.addresses].map((address) => [address, owners.ownerOf(address) ?? "no node"]),
  );
}

function peersOf({ bgp }: PlannedRouting): ReadonlyMap<string, string> {
  return new Map(bgp?.plan?.peers.map((peer) => [peer.name, peerText(peer)]));
}

function peerText(peer: BgpPeer): string {
  const { address, port, as, role, multihopTtl, prepend, reflectorClusterId } = peer;
  return [
    `AS ${as} at ${address} port ${port} (${role})`,
    ...(multihopTtl === undefined ? [] : [`at most ${multihopTtl} hops`]),
    ...(prepend > 0 ? [`the own AS ${prepend} times more`] : []),
    ...(reflectorClusterId === undefined ? [] : [`cluster ID ${reflectorClusterId}`]),
  ].join(", ");
}

function announcedOf({ bgp }: PlannedRouting): ReadonlyMap<string, string> {
  return new Map(
    bgp?.plan?.announced.map(({ prefix, to, kind, communities }) => [
      prefix,
      [`${kind} to ${to.join(", ")}`, ...communities].join(", "),
    ]),
  );
}
