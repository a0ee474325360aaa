/**
 * The `from` or `to` of a rule.
 *
 * @module
 */
import type { NetworkPolicyPeer } from "../api/kinds/network_policy.ts";
import type { ProblemCollector } from "../api/problem_collector.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../net/cidr.ts";
import type { IpFamily } from "../net/ip_address.ts";
import type { BlockWithExceptions } from "../net/nested_blocks.ts";
import { EVERYTHING, parseLabelSelector } from "./label_selector.ts";
import {
  type BlocksSource,
  blocksSource,
  type PeerSource,
  type PodQuery,
  podsSource,
} from "./peer_source.ts";

/** Peers of both families. Any of them may be the other end. */
interface PolicyPeers {
  readonly queries: readonly PodQuery[];
  /** The queries as sets. */
  readonly sources: readonly PeerSource[];
  readonly blocks: readonly BlockWithExceptions[];
}

/** Peers in one family. */
export interface FamilyPeers {
  readonly queries: readonly PodQuery[];
  /** Absent = there are none of this family. */
  readonly blocks?: BlocksSource;
  /** Queries and blocks as sets. */
  readonly sources: readonly PeerSource[];
}

/** Exceptions that are read without a pause. */
const EXCEPTIONS_PER_STEP = 64;

/** The path of a part of the object, and the collector of its problems. */
interface PolicyPlace {
  readonly path: string;
  readonly problems: ProblemCollector;
}

/** Reads the peers of a rule; `undefined` = anyone. A peer that cannot be read matches no pod. */
export function* parsePolicyPeers(
  raw: readonly NetworkPolicyPeer[] | undefined,
  { namespace, place }: { readonly namespace: string; readonly place: PolicyPlace },
): Generator<void, PolicyPeers | undefined, void> {
  if (!raw?.length) return undefined;
  const queries: PodQuery[] = [];
  const blocks: BlockWithExceptions[] = [];
  for (const [index, peer] of raw.entries()) {
    yield;
    const at = { ...place, path: `${place.path}[${index}]` };
    if (!isWhole(peer, at)) continue;
    const { podSelector, namespaceSelector, ipBlock } = peer;
    const selects = podSelector ?? namespaceSelector;
    if ((ipBlock === undefined) === (selects === undefined)) {
      at.problems.report(at.path, peer, "The peer has to be either selectors or ipBlock: ignored");
      continue;
    }
    const block = ipBlock && (yield* parseBlock(ipBlock, { ...at, path: `${at.path}.ipBlock` }));
    if (block) blocks.push(block);
    const query = selects && parseQuery(peer, { namespace, place: at });
    if (query) queries.push(query);
  }
  const sources: PeerSource[] = [];
  for (const query of queries) {
    sources.push(podsSource(query));
    yield;
  }
  return { queries, sources, blocks };
}

/** Returns the peers of one family. */
export function peersInFamily(
  { queries, sources, blocks }: PolicyPeers,
  family: IpFamily,
): FamilyPeers {
  const own = blocks.filter(({ cidr }) => cidrFamilyOf(cidr) === family);
  if (own.length === 0) return { queries, sources };
  const source = blocksSource(own);
  return { queries, blocks: source, sources: [...sources, source] };
}

function parseQuery(
  { podSelector, namespaceSelector }: NetworkPolicyPeer,
  { namespace, place: { path, problems } }: {
    readonly namespace: string;
    readonly place: PolicyPlace;
  },
): PodQuery | undefined {
  const pods = podSelector
    ? parseLabelSelector(podSelector, { path: `${path}.podSelector`, problems })
    : EVERYTHING;
  const selector = namespaceSelector &&
    parseLabelSelector(namespaceSelector, { path: `${path}.namespaceSelector`, problems });
  if (pods.isInvalid || selector?.isInvalid) return undefined;
  if (selector === undefined) return { scope: { kind: "namespace", name: namespace }, pods };
  return { scope: { kind: "namespaces", selector }, pods };
}

function* parseBlock(
  block: NonNullable<NetworkPolicyPeer["ipBlock"]>,
  place: PolicyPlace,
): Generator<void, BlockWithExceptions | undefined, void> {
  if (!isWhole(block, place)) return undefined;
  const cidr = tryParseCidr(block.cidr?.trim() ?? "");
  const except: Cidr[] = [];
  for (const [index, text] of (block.except ?? []).entries()) {
    if (index % EXCEPTIONS_PER_STEP === 0) yield;
    const each = tryParseCidr(text.trim());
    if (each !== undefined) except.push(each);
  }
  const isRead = except.length === (block.except ?? []).length;
  if (cidr !== undefined && isRead) return { cidr, except };
  const message = "The block is no CIDR, or an exception is none: ignored";
  place.problems.report(place.path, block, message);
  return undefined;
}

/** Whether every field is known. A field that is not could make the others mean less. */
export function isWhole(
  { unknownFields }: { readonly unknownFields?: readonly string[] },
  { path, problems }: PolicyPlace,
): boolean {
  if (unknownFields === undefined) return true;
  // The reader already reported a value that is not an object.
  if (unknownFields.length > 0) {
    problems.report(path, unknownFields, "The fields are not understood: nothing is allowed by it");
  }
  return false;
}
