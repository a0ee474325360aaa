/**
 * NetworkPolicies, parsed once: what they isolate, and rules ready for plans.
 *
 * What cannot be understood allows nothing, and the pods stay isolated.
 *
 * @module
 */
import { objectKey } from "../api/kind.ts";
import type { NetworkPolicy, NetworkPolicyPeer } from "../api/kinds/network_policy.ts";
import type { ObjectProblem } from "../api/problem.ts";
import { ProblemCollector } from "../api/problem_collector.ts";
import { cidrFamilyOf, tryParseCidr } from "../net/cidr.ts";
import { blocksWithoutExceptions, type BlockWithExceptions } from "../net/cidr_difference.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import { EVERYTHING, type LabelSelector, parseLabelSelector } from "./label_selector.ts";
import {
  ALL_PODS,
  blocksSource,
  type PeerSource,
  podPortsSource,
  type PodQuery,
  podsSource,
} from "./peer_source.ts";
import type { Direction, PolicyKey, PortRange } from "./policy_plan.ts";
import type { NamedPort } from "./policy_pod.ts";
import { parsePolicyPorts, type PolicyPorts } from "./policy_ports.ts";

/** Most rules, ports, peers and terms of selectors of one policy. */
const MOST_PARTS = 20_000;
/** Most blocks of one rule and family, exceptions taken out: the default limit of a kernel set. */
const MOST_BLOCKS = 65_536;

/** A policy. */
export interface Policy {
  readonly key: PolicyKey;
  readonly namespace: string;
  readonly podSelector: LabelSelector;
  /** Absent = the policy does not isolate in that direction. */
  readonly rules: Readonly<Partial<Record<Direction, FamilyRules>>>;
  readonly problems: readonly ObjectProblem[];
}

/** The rules that can match in each family, in their order. */
export type FamilyRules = Readonly<Record<IpFamily, readonly ParsedRule[]>>;

/** A rule, or a part of it. */
export interface ParsedRule {
  readonly index: number;
  /** Absent = anyone. Never empty. */
  readonly peers?: readonly PeerSource[];
  /** Absent = every port, unless there are names. */
  readonly ports?: readonly PortRange[];
  /** Ports that have to be found in the pod that is isolated. Only of ingress rules. */
  readonly names?: readonly NamedPort[];
}

type Spec = NetworkPolicy["spec"];

/** The fields that rules of both directions have. */
interface RawRule {
  readonly peers: readonly NetworkPolicyPeer[] | undefined;
  readonly ports: Parameters<typeof parsePolicyPorts>[0];
  readonly unknownFields?: readonly string[];
}

interface Peers {
  readonly queries: readonly PodQuery[];
  readonly blocks: readonly BlockWithExceptions[];
}

/** Where problems of a part of the object go. */
interface Place {
  readonly path: string;
  readonly problems: ProblemCollector;
}

/** Parses a policy. Never fails: problems are in the result. */
export function parsePolicy(object: NetworkPolicy): Policy {
  const key = objectKey(object) as PolicyKey;
  const namespace = object.metadata.namespace ?? "";
  const problems = new ProblemCollector("NetworkPolicy", key);
  const { spec } = object;
  const podSelector = parseLabelSelector(spec.podSelector ?? {}, "spec.podSelector", problems);
  const isUnderstood = !podSelector.isInvalid && isWhole(spec, { path: "spec", problems }) &&
    isSmall(spec, problems);
  const rules: Partial<Record<Direction, FamilyRules>> = {};
  for (const direction of isolatedDirections(spec, problems)) {
    const raw = isUnderstood ? rawRules(spec, direction) : [];
    rules[direction] = familyRules(raw, { namespace, direction, problems });
  }
  return { key, namespace, podSelector, rules, problems: problems.problems };
}

/** Rule 2 of the API: without types, a policy isolates ingress, and egress if it has egress rules. */
function isolatedDirections(spec: Spec, problems: ProblemCollector): readonly Direction[] {
  const { policyTypes = [], egress } = spec;
  if (policyTypes.length === 0) return egress?.length ? ["ingress", "egress"] : ["ingress"];
  const found: Direction[] = [];
  if (policyTypes.includes("Ingress")) found.push("ingress");
  if (policyTypes.includes("Egress")) found.push("egress");
  const unknown = policyTypes.filter((type) => type !== "Ingress" && type !== "Egress");
  if (unknown.length > 0) {
    const message = "The type is not understood; without another, the pods are isolated both ways";
    problems.report("spec.policyTypes", unknown, message);
  }
  return found.length > 0 ? found : ["ingress", "egress"];
}

function rawRules({ ingress, egress }: Spec, direction: Direction): readonly RawRule[] {
  return direction === "ingress"
    ? (ingress ?? []).map(({ from, ...rest }) => ({ ...rest, peers: from, ports: rest.ports }))
    : (egress ?? []).map(({ to, ...rest }) => ({ ...rest, peers: to, ports: rest.ports }));
}

function familyRules(
  raw: readonly RawRule[],
  { namespace, direction, problems }: {
    readonly namespace: string;
    readonly direction: Direction;
    readonly problems: ProblemCollector;
  },
): FamilyRules {
  const found: Record<IpFamily, ParsedRule[]> = { IPv4: [], IPv6: [] };
  for (const [index, rule] of raw.entries()) {
    const path = `spec.${direction}[${index}]`;
    const ports = parsePolicyPorts(rule.ports, { path: `${path}.ports`, problems });
    const peersPath = `${path}.${direction === "ingress" ? "from" : "to"}`;
    const peers = parsePeers(rule.peers, { namespace, place: { path: peersPath, problems } });
    if (!isWhole(rule, { path, problems }) || ports?.isNothing) continue;
    for (const family of IP_FAMILIES) {
      const place = { path: peersPath, problems };
      const sources = peers && inFamily(peers, { family, place });
      const parts = direction === "ingress"
        ? ingressParts(sources, ports)
        : egressParts(sources, ports);
      for (const part of parts) {
        if (part.peers?.length !== 0) found[family].push({ index, ...part });
      }
    }
  }
  return found;
}

/** Peers in one family. */
interface FamilyPeers {
  readonly queries: readonly PodQuery[];
  readonly blocks: readonly PeerSource[];
  readonly cidrs: readonly Parameters<typeof blocksSource>[0][number][];
}

function inFamily(
  { queries, blocks }: Peers,
  { family, place }: { readonly family: IpFamily; readonly place: Place },
): FamilyPeers {
  const own = blocks.filter(({ cidr }) => cidrFamilyOf(cidr) === family);
  const cidrs = blocksWithoutExceptions(own, { family, most: MOST_BLOCKS });
  if (cidrs === undefined) {
    const message = "Without its exceptions, the list has too many blocks: none of them is allowed";
    place.problems.report(place.path, own.length, message);
  }
  const found = cidrs ?? [];
  return { queries, cidrs: found, blocks: found.length > 0 ? [blocksSource(found)] : [] };
}

type Part = Omit<ParsedRule, "index">;

function plainPeers(peers: FamilyPeers | undefined): Pick<Part, "peers"> {
  return peers ? { peers: unique([...peers.queries.map(podsSource), ...peers.blocks]) } : {};
}

function ingressParts(peers: FamilyPeers | undefined, ports: PolicyPorts | undefined): Part[] {
  const { ranges, names = [] } = ports ?? {};
  return [{
    ...plainPeers(peers),
    ...(ranges && { ports: ranges }),
    ...(names.length > 0 && { names }),
  }];
}

/** A name of an egress rule stands for another port in each peer: sets of addresses with their ports. */
function egressParts(peers: FamilyPeers | undefined, ports: PolicyPorts | undefined): Part[] {
  const { ranges, names = [] } = ports ?? {};
  const parts: Part[] = [];
  if (ranges === undefined) parts.push(plainPeers(peers));
  else if (ranges.length > 0) parts.push({ ...plainPeers(peers), ports: ranges });
  if (names.length > 0) {
    const sources = (peers?.queries ?? [ALL_PODS]).map((query) => podPortsSource(query, { names }));
    if (peers?.cidrs.length) sources.push(podPortsSource(ALL_PODS, { names, within: peers.cidrs }));
    parts.push({ peers: unique(sources) });
  }
  return parts;
}

function unique(sources: readonly PeerSource[]): readonly PeerSource[] {
  return [...new Map(sources.map((source) => [source.id, source])).values()];
}

function parsePeers(
  raw: readonly NetworkPolicyPeer[] | undefined,
  { namespace, place }: { readonly namespace: string; readonly place: Place },
): Peers | undefined {
  if (!raw?.length) return undefined;
  const queries: PodQuery[] = [];
  const blocks: BlockWithExceptions[] = [];
  for (const [index, peer] of raw.entries()) {
    const path = `${place.path}[${index}]`;
    const at = { ...place, path };
    if (!isWhole(peer, at)) continue;
    const { podSelector, namespaceSelector, ipBlock } = peer;
    if (ipBlock !== undefined && !podSelector && !namespaceSelector) {
      const block = parseBlock(ipBlock, { ...place, path: `${path}.ipBlock` });
      if (block) blocks.push(block);
      continue;
    }
    if (ipBlock !== undefined || (!podSelector && !namespaceSelector)) {
      place.problems.report(path, peer, "The peer has to be either selectors or ipBlock: ignored");
      continue;
    }
    const pods = podSelector
      ? parseLabelSelector(podSelector, `${path}.podSelector`, place.problems)
      : EVERYTHING;
    const namespaces = namespaceSelector &&
      parseLabelSelector(namespaceSelector, `${path}.namespaceSelector`, place.problems);
    if (pods.isInvalid || namespaces?.isInvalid) continue;
    const scope = namespaces
      ? { kind: "namespaces", selector: namespaces } as const
      : { kind: "namespace", name: namespace } as const;
    queries.push({ scope, pods });
  }
  return { queries, blocks };
}

function parseBlock(
  block: NonNullable<NetworkPolicyPeer["ipBlock"]>,
  place: Place,
): BlockWithExceptions | undefined {
  if (!isWhole(block, place)) return undefined;
  const cidr = tryParseCidr(block.cidr.trim());
  const except = (block.except ?? []).map((text) => tryParseCidr(text.trim()));
  const isRead = except.every((each) => each !== undefined);
  if (cidr !== undefined && isRead) return { cidr, except };
  place.problems.report(
    place.path,
    block,
    "The block is no CIDR, or an exception is none: ignored",
  );
  return undefined;
}

/** Whether every field is known. A field that is not could make the others mean less. */
function isWhole(
  { unknownFields }: { readonly unknownFields?: readonly string[] },
  { path, problems }: Place,
): boolean {
  if (unknownFields === undefined) return true;
  problems.report(path, unknownFields, "The fields are not understood: nothing is allowed by it");
  return false;
}

function isSmall(spec: Spec, problems: ProblemCollector): boolean {
  let parts = 0;
  for (const direction of ["ingress", "egress"] as const) {
    for (const { peers = [], ports = [] } of rawRules(spec, direction)) {
      parts += 1 + peers.length + ports.length;
      for (const { podSelector, namespaceSelector } of peers) {
        for (const selector of [podSelector, namespaceSelector]) parts += termsOf(selector);
      }
    }
  }
  if (parts <= MOST_PARTS) return true;
  problems.report(
    "spec",
    parts,
    "The policy has too many rules, ports and peers: it allows nothing",
  );
  return false;
}

function termsOf(selector: Spec["podSelector"]): number {
  const { matchLabels = {}, matchExpressions = [] } = selector ?? {};
  return Object.keys(matchLabels).length +
    matchExpressions.reduce((sum, { values = [] }) => sum + 1 + values.length, 0);
}
