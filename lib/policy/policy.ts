/**
 * Policies, parsed once: the pods that they select, and rules ready for plans. NetworkPolicies are read
 * here, those of the administrator in `cluster_policy.ts`.
 *
 * Parts of a NetworkPolicy that are not understood allow nothing, and the pods stay isolated.
 *
 * @module
 */
import { objectKey } from "../api/kind.ts";
import type {
  NetworkPolicy,
  NetworkPolicyPeer,
  NetworkPolicyPort,
} from "../api/kinds/network_policy.ts";
import { type ObjectProblem, ProblemCollector } from "../api/problem.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import type { BlockWithExceptions } from "../net/nested_blocks.ts";
import { parsePort, PROTOCOLS, tryParsePort, tryParseProtocol } from "../net/port.ts";
import { atOnce } from "../net/steps.ts";
import { EVERYTHING, parseLabelSelector } from "./label_selector.ts";
import {
  ALL_PODS,
  blocksSource,
  type PeerSource,
  podPortsSource,
  type PodQuery,
  podsSource,
} from "./peer_source.ts";
import { countPolicyParts, MOST_NAMESPACE_PARTS, MOST_POLICY_PARTS } from "./policy_budget.ts";
import type { Direction, PolicyKey, PortRange, RuleHead, Tier } from "./policy_plan.ts";
import type { NamedPort } from "./policy_pod.ts";

/**
 * The rules of each direction; absent = the policy has no effect there. A NetworkPolicy isolates in the
 * others, even without rules.
 */
export type PolicyRules = Readonly<Partial<Record<Direction, FamilyRules>>>;

/** The part of a policy that is read in steps. */
interface PolicyBody {
  readonly rules: PolicyRules;
  /** All names of ports that ingress rules have, which stand for other ports in each pod. */
  readonly names: readonly NamedPort[];
}

/** What is known of a policy before its rules are read. */
interface PolicyHead {
  readonly key: PolicyKey;
  readonly tier: Tier;
  /** Policies of a tier with smaller numbers come first; 0 for NetworkPolicies, whose order has no effect. */
  readonly priority: number;
  readonly created: string | undefined;
  /** The pods that are selected; `undefined` = none, because it cannot be read. */
  readonly subject: PodQuery | undefined;
  /** The parts that count in the budget of its namespace. */
  readonly parts: number;
}

/** A policy. Its rules are read when they are first asked for. Never fails: problems are in the result. */
export class Policy implements PolicyHead {
  readonly key: PolicyKey;
  readonly tier: Tier;
  readonly priority: number;
  readonly created: string | undefined;
  readonly subject: PodQuery | undefined;
  readonly parts: number;
  readonly #problems: ProblemCollector;
  readonly #reading: Generator<void, PolicyRules, void>;
  #body: PolicyBody | undefined;

  constructor(
    { key, tier, priority, created, subject, parts }: PolicyHead,
    reading: Generator<void, PolicyRules, void>,
    problems: ProblemCollector,
  ) {
    this.key = key;
    this.tier = tier;
    this.priority = priority;
    this.created = created;
    this.subject = subject;
    this.parts = parts;
    this.#reading = reading;
    this.#problems = problems;
  }

  get rules(): PolicyRules {
    return atOnce(this.readInSteps()).rules;
  }

  get names(): readonly NamedPort[] {
    return atOnce(this.readInSteps()).names;
  }

  get problems(): readonly ObjectProblem[] {
    atOnce(this.readInSteps());
    return this.knownProblems;
  }

  /** The problems of what was read so far. Asking for them reads nothing. */
  get knownProblems(): readonly ObjectProblem[] {
    return this.#problems.problems;
  }

  /** Whether a pod may be denied traffic in a direction because of this policy. */
  denies(direction: Direction): boolean {
    const rules = this.rules[direction];
    if (rules === undefined || this.tier === "NetworkPolicy") return rules !== undefined;
    return IP_FAMILIES.some((family) => rules[family].some(({ action }) => action === "deny"));
  }

  /** Reads the rules in short steps, unless that is done. Several callers share the steps. */
  *readInSteps(): Generator<void, PolicyBody, void> {
    while (this.#body === undefined) {
      const { done, value } = this.#reading.next();
      if (!done) {
        yield;
        continue;
      }
      const names = IP_FAMILIES.flatMap((family) => value.ingress?.[family] ?? [])
        .flatMap((rule) => rule.names ?? []);
      const byText = new Map(names.map((name) => [`${name.protocol} ${name.name}`, name]));
      this.#body = { rules: value, names: [...byText.values()] };
    }
    return this.#body;
  }
}

/** Without room in the budget of its namespace, a NetworkPolicy isolates its pods and allows nothing. */
export function networkPolicy(object: NetworkPolicy, { isAdmitted = true } = {}): Policy {
  const { metadata, spec } = object;
  const key = objectKey(object) as PolicyKey;
  const problems = new ProblemCollector("NetworkPolicy", key);
  const namespace = metadata.namespace ?? "";
  const pods = parseLabelSelector(spec.podSelector ?? {}, "spec.podSelector", problems);
  const parts = countPolicyParts(spec);
  const directions = isolatedDirections(spec, problems);
  function* read(): Generator<void, PolicyRules, void> {
    const isSmall = parts <= MOST_POLICY_PARTS;
    const isRead = isWhole(spec, "spec", problems) && !pods.isInvalid;
    if (isRead && !isSmall) problems.report("spec", parts, TOO_LARGE);
    else if (isRead && !isAdmitted) {
      problems.report("spec", `${parts} in namespace ${namespace}`, NO_ROOM);
    }
    const rules: Partial<Record<Direction, FamilyRules>> = {};
    for (const direction of directions) {
      const raw = isRead && isSmall && isAdmitted ? spec[direction] ?? [] : [];
      rules[direction] = yield* familyRules(raw, namespace, direction, problems);
    }
    return rules;
  }
  const subject = { scope: { kind: "namespace", name: namespace }, pods } as const;
  return new Policy(
    {
      ...{ key, subject, parts, tier: "NetworkPolicy", priority: 0 },
      created: metadata.creationTimestamp,
    },
    read(),
    problems,
  );
}

/** The rules that can match in each family, in their order. */
export type FamilyRules = Readonly<Record<IpFamily, readonly ParsedRule[]>>;

/** A rule, or a part of it. */
export interface ParsedRule extends RuleHead {
  /** Absent = anyone. Never empty. */
  readonly peers?: readonly PeerSource[];
  /** Absent = every port, unless there are names. */
  readonly ports?: readonly PortRange[];
  /** Ports that have to be found in the pod that is isolated. Only of ingress rules. */
  readonly names?: readonly NamedPort[];
}

type Spec = NetworkPolicy["spec"];
/** A rule of either direction. */
type RawRule = NonNullable<Spec["ingress"]>[number] & NonNullable<Spec["egress"]>[number];

/**
 * The directions in which pods are isolated. Without types, a policy isolates ingress, and egress if it
 * has egress rules. It isolates in both where these fields cannot be read.
 */
function isolatedDirections(spec: Spec, problems: ProblemCollector): readonly Direction[] {
  const { policyTypes = [], egress, unknownFields } = spec;
  if (policyTypes.length === 0) {
    const isUnread = unknownFields?.length === 0 ||
      unknownFields?.some((name) => name === "policyTypes" || name === "egress");
    return isUnread || egress?.length ? ["ingress", "egress"] : ["ingress"];
  }
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

function* familyRules(
  raw: readonly RawRule[],
  namespace: string,
  direction: Direction,
  problems: ProblemCollector,
): Generator<void, FamilyRules, void> {
  const found: Record<IpFamily, ParsedRule[]> = { IPv4: [], IPv6: [] };
  const field = direction === "ingress" ? "from" : "to";
  for (const [index, rule] of raw.entries()) {
    const path = `spec.${direction}[${index}]`;
    const ports = parsePolicyPorts(rule.ports, `${path}.ports`, problems);
    yield;
    const peers = yield* parsePolicyPeers(rule[field], namespace, `${path}.${field}`, problems);
    if (!isWhole(rule, path, problems) || ports?.isNothing) continue;
    addRule(found, direction, { head: { index }, peers, ports });
  }
  return found;
}

/** Adds what a rule means in each family. */
export function addRule(
  found: Readonly<Record<IpFamily, ParsedRule[]>>,
  direction: Direction,
  { head, peers, ports }: {
    readonly head: RuleHead;
    /** `undefined` = anyone. */
    readonly peers: PolicyPeers | undefined;
    /** `undefined` = every port. */
    readonly ports: Pick<PolicyPorts, "names" | "ranges"> | undefined;
  },
): void {
  const { ranges, names = [] } = ports ?? {};
  for (const family of IP_FAMILIES) {
    const own = peers?.blocks.filter(({ cidr }) => cidrFamilyOf(cidr) === family) ?? [];
    const blocks = own.length > 0 ? [blocksSource(own)] : [];
    const add = (sources: readonly PeerSource[] | undefined, part: Partial<ParsedRule> = {}) => {
      if (sources?.length === 0) return;
      found[family].push({ ...head, ...(sources && { peers: unique(sources) }), ...part });
    };
    if (direction === "ingress" || ranges?.length !== 0) {
      add(peers && [...peers.sources, ...blocks], {
        ...(ranges && { ports: ranges }),
        ...(direction === "ingress" && names.length > 0 && { names }),
      });
    }
    if (direction === "ingress" || names.length === 0) continue;
    // A name stands for another port in each peer: sets of addresses with their ports.
    add([
      ...(peers?.queries ?? [ALL_PODS]).map((query) => podPortsSource(query, names)),
      ...blocks.map((within) => podPortsSource(ALL_PODS, names, within)),
    ]);
  }
}

function unique(sources: readonly PeerSource[]): readonly PeerSource[] {
  return [...new Map(sources.map((source) => [source.id, source])).values()];
}

const COUNTED = "rules, ports, peers, exceptions and terms of selectors";
const TOO_LARGE = `The policy has more than ${MOST_POLICY_PARTS} ${COUNTED}: ` +
  "its pods are isolated and it allows nothing; divide it";
const NO_ROOM =
  `The policies of the namespace have more than ${MOST_NAMESPACE_PARTS} ${COUNTED}: ` +
  "this policy, one of the newest, isolates its pods and allows nothing; remove or shorten some";

/** Peers of both families. Any of them may be the other end. */
export interface PolicyPeers {
  readonly queries: readonly PodQuery[];
  /** The queries as sets. */
  readonly sources: readonly PeerSource[];
  readonly blocks: readonly BlockWithExceptions[];
}

/** Exceptions that are read without a pause. */
const EXCEPTIONS_PER_STEP = 64;

/** Reads the peers of a rule; `undefined` = anyone. A peer that cannot be read matches no pod. */
function* parsePolicyPeers(
  raw: readonly NetworkPolicyPeer[] | undefined,
  namespace: string,
  path: string,
  problems: ProblemCollector,
): Generator<void, PolicyPeers | undefined, void> {
  if (!raw?.length) return undefined;
  const queries: PodQuery[] = [];
  const blocks: BlockWithExceptions[] = [];
  for (const [index, peer] of raw.entries()) {
    yield;
    const at = `${path}[${index}]`;
    if (!isWhole(peer, at, problems)) continue;
    const { podSelector, namespaceSelector, ipBlock } = peer;
    const selects = podSelector ?? namespaceSelector;
    if ((ipBlock === undefined) === (selects === undefined)) {
      problems.report(at, peer, "The peer has to be either selectors or ipBlock: ignored");
      continue;
    }
    const block = ipBlock && (yield* parseBlock(ipBlock, `${at}.ipBlock`, problems));
    if (block) blocks.push(block);
    const query = selects && parseQuery(peer, namespace, at, problems);
    if (query) queries.push(query);
  }
  const sources: PeerSource[] = [];
  for (const query of queries) {
    sources.push(podsSource(query));
    yield;
  }
  return { queries, sources, blocks };
}

function parseQuery(
  { podSelector, namespaceSelector }: NetworkPolicyPeer,
  namespace: string,
  path: string,
  problems: ProblemCollector,
): PodQuery | undefined {
  const pods = podSelector
    ? parseLabelSelector(podSelector, `${path}.podSelector`, problems)
    : EVERYTHING;
  const selector = namespaceSelector &&
    parseLabelSelector(namespaceSelector, `${path}.namespaceSelector`, problems);
  if (pods.isInvalid || selector?.isInvalid) return undefined;
  if (selector === undefined) return { scope: { kind: "namespace", name: namespace }, pods };
  return { scope: { kind: "namespaces", selector }, pods };
}

function* parseBlock(
  block: NonNullable<NetworkPolicyPeer["ipBlock"]>,
  path: string,
  problems: ProblemCollector,
): Generator<void, BlockWithExceptions | undefined, void> {
  if (!isWhole(block, path, problems)) return undefined;
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
  problems.report(path, block, message);
  return undefined;
}

const NOT_UNDERSTOOD = "The fields are not understood: nothing is allowed by it";

/** Whether every field is known. A field that is not could make the others mean less. */
export function isWhole(
  { unknownFields }: { readonly unknownFields?: readonly string[] },
  path: string,
  problems: ProblemCollector,
  message = NOT_UNDERSTOOD,
): boolean {
  if (unknownFields === undefined) return true;
  // The reader already reported a value that is not an object.
  if (unknownFields.length > 0) problems.report(path, unknownFields, message);
  return false;
}

/** The ports of a rule that names some. */
interface PolicyPorts {
  /** Sorted and disjoint. */
  readonly ranges: readonly PortRange[];
  /** Sorted and unique. */
  readonly names: readonly NamedPort[];
  /** No entry could be read: the rule matches nothing. */
  readonly isNothing: boolean;
}

/** Most entries of one rule. */
const MOST_ENTRIES = 4_096;
/** The first port and the last one. */
export const [FIRST_PORT, LAST_PORT] = [parsePort(1), parsePort(65_535)];

/** Reads the ports of a rule; `undefined` = every port. An entry that cannot be read matches nothing. */
function parsePolicyPorts(
  raw: readonly NetworkPolicyPort[] | undefined,
  path: string,
  problems: ProblemCollector,
): PolicyPorts | undefined {
  if (!raw?.length) return undefined;
  if (raw.length > MOST_ENTRIES) {
    const message = `A rule may have ${MOST_ENTRIES} ports: this one matches nothing; use endPort`;
    problems.report(path, raw.length, message);
    return { ranges: [], names: [], isNothing: true };
  }
  const ranges: PortRange[] = [];
  const names = new Map<string, NamedPort>();
  for (const [index, entry] of raw.entries()) {
    const parsed = parseEntry(entry);
    if (parsed === undefined) {
      const message =
        "The entry matches nothing: it has to be a protocol, and a port or its name, " +
        "or a port and an endPort that is not smaller";
      problems.report(`${path}[${index}]`, entry, message);
    } else if ("name" in parsed) names.set(`${parsed.protocol} ${parsed.name}`, parsed);
    else ranges.push(parsed);
  }
  return {
    ranges: mergePortRanges(ranges),
    names: [...names].sort(([left], [right]) => left < right ? -1 : 1).map(([, name]) => name),
    isNothing: ranges.length === 0 && names.size === 0,
  };
}

function parseEntry(
  { protocol: word, port, endPort, unknownFields }: NetworkPolicyPort,
): PortRange | NamedPort | undefined {
  const protocol = tryParseProtocol(word);
  if (protocol === undefined || unknownFields !== undefined) return undefined;
  if (typeof port !== "number") {
    if (endPort !== undefined) return undefined;
    return port === undefined
      ? { protocol, from: FIRST_PORT, to: LAST_PORT }
      : { protocol, name: port };
  }
  const [from, to] = [tryParsePort(port), tryParsePort(endPort ?? port)];
  return from === undefined || to === undefined || to < from ? undefined : { protocol, from, to };
}

/** Sorted and disjoint; neighbours become one. */
export function mergePortRanges<
  Range extends Pick<PortRange, "from" | "to"> & { readonly protocol: string },
>(ranges: readonly Range[], protocols: readonly string[] = PROTOCOLS): readonly Range[] {
  return protocols.flatMap((protocol) => {
    const merged: Range[] = [];
    const own = ranges.filter((range) => range.protocol === protocol);
    for (const range of own.sort((left, right) => left.from - right.from)) {
      const before = merged.at(-1);
      if (before === undefined || range.from > before.to + 1) merged.push(range);
      else if (range.to > before.to) merged[merged.length - 1] = { ...before, to: range.to };
    }
    return merged;
  });
}
