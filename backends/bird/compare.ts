/**
 * Compares BIRD with a plan: its configuration, its sessions, and the prefixes that it sends to peers.
 *
 * @module
 */
import { cidrFamilyOf } from "../../lib/net/cidr.ts";
import { type BgpPeer, type BgpPlan, carriesFamily } from "../../lib/routing/bgp_plan.ts";
import { type BirdControl, BirdError } from "./bird_control.ts";
import { type BgpSession, parsePrefixes } from "./bird_status.ts";
import { protocolOf } from "./bird_text.ts";
import { type BirdState, isInForce } from "./bird_writer.ts";
import type { RoutingDifference } from "../../lib/routing/compare_layer2.ts";

/** A difference between the plan and BIRD. */
export interface BgpDifference extends RoutingDifference {
  readonly object: "configuration" | "peer" | "announcement";
}

/** The prefixes sent to each peer, by the name of the peer. Contains only peers whose session is up. */
export type SentPrefixes = ReadonlyMap<string, ReadonlySet<string>>;

const NO_ROUTE = 8001;

/** Reads the prefixes that BIRD sends to its peers. Throws a BirdError. */
export async function readSentPrefixes(
  control: BirdControl,
  sessions: readonly BgpSession[],
): Promise<SentPrefixes> {
  const sent = new Map<string, ReadonlySet<string>>();
  for (const { peer, state } of sessions) {
    if (state !== "Established") continue;
    const lines = await control.run(`show route export ${protocolOf(peer)}`).catch((error) => {
      if (!(error instanceof BirdError) || error.kind !== "absent") throw error;
      // With this code BIRD sends no prefix. With another code, the session went down meanwhile.
      return error.code === NO_ROUTE ? [] : undefined;
    });
    if (lines !== undefined) sent.set(peer, parsePrefixes(lines));
  }
  return sent;
}

/** Returns the differences between a plan and BIRD. Pure. */
export function compareBird(
  plan: BgpPlan,
  { sent, state }: { readonly sent: SentPrefixes; readonly state: BirdState },
): readonly BgpDifference[] {
  const leftOut = new Set(state.config.quarantined.map(({ key }) => key));
  const peers = plan.peers.filter(({ name }) => !leftOut.has(`peer ${name}`));
  return [
    ...configurationDifferences(state),
    ...peerDifferences(peers, state.sessions),
    ...peers.flatMap((peer) => {
      const found = sent.get(peer.name);
      if (found === undefined) return [];
      const prefixes = plan.announced.filter(({ prefix, to }) =>
        to.includes(peer.role) && !leftOut.has(`prefix ${prefix}`) &&
        carriesFamily(peer, cidrFamilyOf(prefix))
      );
      return sentDifferences(peer, new Set(prefixes.map(({ prefix }) => prefix)), found);
    }),
  ];
}

function configurationDifferences(state: BirdState): BgpDifference[] {
  const { config, former, inForce } = state;
  const base = { object: "configuration", wanted: config.id } as const;
  const differences: BgpDifference[] = [];
  if (former.text !== config.text) {
    const kind = former.text === undefined ? "missing" : "altered";
    differences.push({ ...base, name: "file", kind });
  }
  if (inForce === undefined) differences.push({ ...base, name: "BIRD", kind: "missing" });
  else if (differences.length === 0 && !isInForce(state)) {
    differences.push({ ...base, name: "BIRD", kind: "altered", found: inForce.id ?? "" });
  }
  return differences;
}

function peerDifferences(
  peers: readonly BgpPeer[],
  sessions: readonly BgpSession[],
): BgpDifference[] {
  const wanted = new Set(peers.map(({ name }) => name));
  const found = new Set(sessions.map(({ peer }) => peer));
  return [
    ...[...wanted].filter((name) => !found.has(name))
      .map((name) => ({ object: "peer", name, kind: "missing" }) as const),
    ...[...found].filter((name) => !wanted.has(name))
      .map((name) => ({ object: "peer", name, kind: "extra" }) as const),
  ];
}

/** Compares one peer. Only external peers can have extra prefixes: a reflector sends those of others. */
function sentDifferences(
  { name, role }: BgpPeer,
  wanted: ReadonlySet<string>,
  found: ReadonlySet<string>,
): BgpDifference[] {
  const of = (prefix: string) =>
    ({ object: "announcement", name: `${prefix} to ${name}` }) as const;
  return [
    ...[...wanted].filter((prefix) => !found.has(prefix))
      .map((prefix) => ({ ...of(prefix), kind: "missing" }) as const),
    ...role !== "external" ? [] : [...found].filter((prefix) => !wanted.has(prefix))
      .map((prefix) => ({ ...of(prefix), kind: "extra" }) as const),
  ];
}
