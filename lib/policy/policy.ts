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
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import { type LabelSelector, parseLabelSelector } from "./label_selector.ts";
import { ALL_PODS, type PeerSource, podPortsSource } from "./peer_source.ts";
import { type FamilyPeers, isWhole, parsePolicyPeers, peersInFamily } from "./policy_peers.ts";
import type { Direction, PolicyKey, PortRange } from "./policy_plan.ts";
import type { NamedPort } from "./policy_pod.ts";
import { parsePolicyPorts, type PolicyPorts } from "./policy_ports.ts";

/** Most rules, ports, peers and terms of selectors of one policy. */
const MOST_PARTS = 20_000;

/** A policy. */
export interface Policy {
  readonly key: PolicyKey;
  readonly namespace: string;
  readonly podSelector: LabelSelector;
  /** Absent = the policy does not isolate in that direction. */
  readonly rules: Readonly<Partial<Record<Direction, FamilyRules>>>;
  /** All names of ports that ingress rules have, which stand for other ports in each pod. */
  readonly names: readonly NamedPort[];
  readonly problems: readonly ObjectProblem[];
}

/** The rules that can match in each family, in their order. */
type FamilyRules = Readonly<Record<IpFamily, readonly ParsedRule[]>>;

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

/** Parses a policy. Never fails: problems are in the result. */
export function parsePolicy(object: NetworkPolicy): Policy {
  const key = objectKey(object) as PolicyKey;
  const namespace = object.metadata.namespace ?? "";
  const problems = new ProblemCollector("NetworkPolicy", key);
  const { spec } = object;
  const podSelector = parseLabelSelector(spec.podSelector ?? {}, {
    path: "spec.podSelector",
    problems,
  });
  const isUnderstood = !podSelector.isInvalid && isWhole(spec, { path: "spec", problems }) &&
    isSmall(spec, problems);
  const rules: Partial<Record<Direction, FamilyRules>> = {};
  for (const direction of isolatedDirections(spec, problems)) {
    const raw = isUnderstood ? rawRules(spec, direction) : [];
    rules[direction] = familyRules(raw, { namespace, direction, problems });
  }
  const names = IP_FAMILIES.flatMap((family) => rules.ingress?.[family] ?? [])
    .flatMap((rule) => rule.names ?? []);
  const byText = new Map(names.map((name) => [`${name.protocol} ${name.name}`, name]));
  return {
    key,
    namespace,
    podSelector,
    rules,
    names: [...byText.values()],
    problems: problems.problems,
  };
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
    const place = { path: `${path}.${direction === "ingress" ? "from" : "to"}`, problems };
    const peers = parsePolicyPeers(rule.peers, { namespace, place });
    if (!isWhole(rule, { path, problems }) || ports?.isNothing) continue;
    for (const family of IP_FAMILIES) {
      const own = peers && peersInFamily(peers, family);
      const parts = direction === "ingress" ? ingressParts(own, ports) : egressParts(own, ports);
      for (const { peers: sources, ...part } of parts) {
        if (sources?.length === 0) continue;
        found[family].push({ index, ...(sources && { peers: unique(sources) }), ...part });
      }
    }
  }
  return found;
}

type Part = Omit<ParsedRule, "index">;

function ingressParts(peers: FamilyPeers | undefined, ports: PolicyPorts | undefined): Part[] {
  const { ranges, names = [] } = ports ?? {};
  return [{
    ...(peers && { peers: peers.sources }),
    ...(ranges && { ports: ranges }),
    ...(names.length > 0 && { names }),
  }];
}

/** A name of an egress rule stands for another port in each peer: sets of addresses with their ports. */
function egressParts(peers: FamilyPeers | undefined, ports: PolicyPorts | undefined): Part[] {
  const { ranges, names = [] } = ports ?? {};
  const parts = ranges?.length === 0 ? [] : ingressParts(peers, ranges && { ...ports!, names: [] });
  if (names.length === 0) return parts;
  const sources = (peers?.queries ?? [ALL_PODS]).map((query) => podPortsSource(query, { names }));
  const within = peers?.blocks;
  if (within) sources.push(podPortsSource(ALL_PODS, { names, within }));
  return [...parts, { peers: sources }];
}

function unique(sources: readonly PeerSource[]): readonly PeerSource[] {
  return [...new Map(sources.map((source) => [source.id, source])).values()];
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
