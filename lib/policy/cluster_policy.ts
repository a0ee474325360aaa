/**
 * ClusterNetworkPolicies, parsed once, into the same rules as NetworkPolicies.
 *
 * What is not understood fails closed, as the API demands: a rule that accepts matches nothing, and any
 * other rule denies everything.
 *
 * @module
 */
import { objectKey } from "../api/kind.ts";
import type {
  ClusterNetworkPolicy,
  ClusterNetworkPolicySpec,
  ClusterPolicyPeer,
  ClusterPolicyProtocol,
  ClusterPolicyRule,
} from "../api/kinds/cluster_network_policy.ts";
import { ProblemCollector } from "../api/problem.ts";
import { tryParseCidr } from "../net/cidr.ts";
import type { IpFamily } from "../net/ip_address.ts";
import type { BlockWithExceptions } from "../net/nested_blocks.ts";
import { PROTOCOLS, tryParsePort } from "../net/port.ts";
import { EVERYTHING, parseLabelSelector } from "./label_selector.ts";
import { nodesSource, type PeerSource, type PodQuery, podsSource } from "./peer_source.ts";
import {
  addRule,
  FIRST_PORT,
  isWhole,
  LAST_PORT,
  mergePortRanges,
  type ParsedRule,
  Policy,
  type PolicyPeers,
  type PolicyRules,
} from "./policy.ts";
import { countClusterPolicyParts, MOST_POLICY_PARTS } from "./policy_budget.ts";
import type { Direction, PolicyKey, PortRange, RuleHead } from "./policy_plan.ts";
import type { NamedPort } from "./policy_pod.ts";

const CLOSED =
  "It is not understood: a rule that accepts matches nothing, another one denies everything";
const UNKNOWN_SUBJECT =
  "The tier or the subject is not understood: the policy selects no pod and has no effect";
const UNKNOWN_ACTION = "The action is not understood: the rule denies; use Accept, Deny or Pass";
const TOO_LARGE = `The policy has more than ${MOST_POLICY_PARTS} rules, protocols, peers and ` +
  "terms of selectors: it denies everything in the directions in which it has rules; divide it";
const NO_DOMAINS = "Domain names are not supported and match nothing; use networks";
const NO_NAMED_PORTS =
  "Networks and nodes have no named ports: the name only counts for pods; use a number";

/** Parses a policy. Never fails: problems are in the result. */
export function clusterPolicy(object: ClusterNetworkPolicy): Policy {
  const { metadata, spec } = object;
  const key = objectKey(object) as PolicyKey;
  const problems = new ProblemCollector("ClusterNetworkPolicy", key);
  const { tier, priority = 0 } = spec;
  const isPlaced = tier === "Admin" || tier === "Baseline";
  const subject = isPlaced ? subjectOf(spec, problems) : undefined;
  if (subject === undefined) problems.report("spec", { tier, ...spec.subject }, UNKNOWN_SUBJECT);
  const parts = countClusterPolicyParts(spec);
  return new Policy(
    {
      ...{ key, subject, parts, priority, tier: isPlaced ? tier : "Admin" },
      created: metadata.creationTimestamp,
    },
    readRules(spec, parts, problems),
    problems,
  );
}

/** Most policies of one priority that are named, and most priorities. */
const MOST_NAMED = 4;

/**
 * Names the policies that have the tier and the priority of another one: their names decide, but another
 * implementation may choose otherwise.
 */
export function equalPriorities(policies: Iterable<Policy>): readonly string[] {
  const ofCluster = [...policies].filter(({ tier, subject }) =>
    tier !== "NetworkPolicy" && subject
  );
  const groups = Map.groupBy(
    ofCluster,
    ({ tier, priority }) => `tier ${tier}, priority ${priority}`,
  );
  const shared = [...groups].filter(([, { length }]) => length > 1).sort();
  const texts = shared.slice(0, MOST_NAMED).map(([place, same]) => {
    const names = same.map(({ key }) => key).sort();
    const more = names.length - MOST_NAMED;
    const named = names.slice(0, MOST_NAMED).join(", ");
    return `${place}: ${named}${more > 0 ? ` and ${more} more` : ""}; they count by name`;
  });
  return shared.length > texts.length
    ? [...texts, `${shared.length - texts.length} more priorities of several policies`]
    : texts;
}

function subjectOf(
  { subject = {} }: ClusterNetworkPolicySpec,
  problems: ProblemCollector,
): PodQuery | undefined {
  const { namespaces, pods } = subject;
  if (!isWhole(subject, "spec.subject", problems, CLOSED)) return undefined;
  return Boolean(namespaces) === Boolean(pods)
    ? undefined
    : queryOf(subject, "spec.subject", problems);
}

function* readRules(
  spec: ClusterNetworkPolicySpec,
  parts: number,
  problems: ProblemCollector,
): Generator<void, PolicyRules, void> {
  const isRead = isWhole(spec, "spec", problems, CLOSED);
  const isTooLarge = parts > MOST_POLICY_PARTS;
  if (isTooLarge) problems.report("spec", parts, TOO_LARGE);
  const rules: Partial<Record<Direction, Record<IpFamily, ParsedRule[]>>> = {};
  for (const direction of ["ingress", "egress"] as const) {
    const isUnread = isTooLarge || spec.unknownFields?.includes(direction) === true;
    const raw: readonly ClusterPolicyRule[] = spec[direction] ?? [];
    if (raw.length === 0 && !isUnread) continue;
    const found: Record<IpFamily, ParsedRule[]> = rules[direction] = { IPv4: [], IPv6: [] };
    const denyAll = (head: RuleHead) =>
      addRule(found, direction, {
        ...{ head: { ...head, action: "deny" }, peers: undefined, ports: undefined },
      });
    if (isUnread) {
      denyAll({ index: 0 });
      continue;
    }
    for (const [index, rule] of raw.entries()) {
      yield;
      const path = `spec.${direction}[${index}]`;
      const head = headOf(rule, index, path, problems);
      const side = direction === "ingress" ? "from" : "to";
      const peers = readPeers(rule[side], `${path}.${side}`, problems, head.action === undefined);
      const ports = readProtocols(rule.protocols, `${path}.protocols`, problems);
      const isUsable = isWhole(rule, path, problems, CLOSED) && isRead;
      if (isUsable && peers && ports) {
        const hasNames = (ports.names?.length ?? 0) > 0;
        if (hasNames && peers.sources.length + peers.blocks.length > peers.queries.length) {
          problems.report(path, ports.names, NO_NAMED_PORTS);
        }
        addRule(found, direction, {
          head,
          peers,
          ports: ports.ranges && { ...NO_PORTS, ...ports },
        });
      } else if (head.action !== undefined) denyAll(head);
    }
  }
  return rules;
}

const LONGEST_NAME = 100;

function headOf(
  { name, action }: ClusterPolicyRule,
  index: number,
  path: string,
  problems: ProblemCollector,
): RuleHead {
  if (action !== "Accept" && action !== "Deny" && action !== "Pass") {
    problems.report(`${path}.action`, action, UNKNOWN_ACTION);
  }
  return {
    index,
    // An API server allows no longer ones; manifests are used in part.
    ...(name && { name: name.slice(0, LONGEST_NAME) }),
    ...(action !== "Accept" && { action: action === "Pass" ? "pass" : "deny" }),
  };
}

/** Reads the peers of a rule; `undefined` = some cannot be read. */
function readPeers(
  raw: readonly ClusterPolicyPeer[] = [],
  path: string,
  problems: ProblemCollector,
  accepts: boolean,
): PolicyPeers | undefined {
  const queries: PodQuery[] = [];
  const nodes: PeerSource[] = [];
  const blocks: BlockWithExceptions[] = [];
  let isRead = raw.length > 0;
  if (!isRead) problems.report(path, "", CLOSED);
  for (const [index, peer] of raw.entries()) {
    const at = `${path}[${index}]`;
    const { namespaces, pods, nodes: selector, networks, domainNames } = peer;
    const given = [namespaces, pods, selector, networks, domainNames].filter(Boolean);
    if (!isWhole(peer, at, problems, CLOSED) || given.length !== 1) {
      if (peer.unknownFields === undefined) problems.report(at, peer, CLOSED);
      isRead = false;
    } else if (domainNames) {
      problems.report(`${at}.domainNames`, domainNames, NO_DOMAINS);
      isRead &&= accepts;
    } else if (networks) {
      for (const text of networks) {
        const cidr = tryParseCidr(text.trim());
        if (cidr) blocks.push({ cidr, except: [] });
        else {
          problems.report(`${at}.networks`, text, CLOSED);
          isRead = false;
        }
      }
    } else if (selector) {
      const parsed = parseLabelSelector(selector, `${at}.nodes`, problems);
      isRead &&= !parsed.isInvalid;
      nodes.push(nodesSource(parsed));
    } else {
      const query = queryOf(peer, at, problems);
      if (query) queries.push(query);
      else isRead = false;
    }
  }
  const sources = [...queries.map(podsSource), ...nodes];
  return isRead ? { queries, sources, blocks } : undefined;
}

/** `undefined` = the selectors cannot be read. */
function queryOf(
  { namespaces, pods }: Pick<ClusterPolicyPeer, "namespaces" | "pods">,
  path: string,
  problems: ProblemCollector,
): PodQuery | undefined {
  const at = pods ? `${path}.pods` : path;
  if (pods && !isWhole(pods, at, problems, CLOSED)) return undefined;
  const ofNamespaces = pods ? pods.namespaceSelector : namespaces;
  const field = pods ? "namespaceSelector" : "namespaces";
  const selector = parseLabelSelector(ofNamespaces ?? {}, `${at}.${field}`, problems);
  const ofPods = pods
    ? parseLabelSelector(pods.podSelector ?? {}, `${at}.podSelector`, problems)
    : EVERYTHING;
  if (selector.isInvalid || ofPods.isInvalid) return undefined;
  return { scope: { kind: "namespaces", selector }, pods: ofPods };
}

const NO_PORTS = { ranges: [], names: [] };

/** Ports; without both lists, every protocol. */
interface ReadPorts {
  readonly ranges?: readonly PortRange[];
  readonly names?: readonly NamedPort[];
}

/** Reads the protocols of a rule; `undefined` = some cannot be read. */
function readProtocols(
  raw: readonly ClusterPolicyProtocol[] | undefined,
  path: string,
  problems: ProblemCollector,
): ReadPorts | undefined {
  if (raw === undefined) return {};
  const ranges: PortRange[] = [];
  const names: NamedPort[] = [];
  let isRead = raw.length > 0;
  for (const [index, entry] of raw.entries()) {
    const parsed = readProtocol(entry);
    if (parsed === undefined) {
      problems.report(`${path}[${index}]`, entry, CLOSED);
      isRead = false;
    } else if (typeof parsed !== "string") ranges.push(parsed);
    else for (const protocol of PROTOCOLS) names.push({ protocol, name: parsed });
  }
  return isRead ? { ranges: mergePortRanges(ranges), names } : undefined;
}

/** Returns the ports of one protocol, or the name of a port. */
function readProtocol(
  { tcp, udp, sctp, destinationNamedPort: name, unknownFields }: ClusterPolicyProtocol,
): PortRange | string | undefined {
  const given = Object.entries({ TCP: tcp, UDP: udp, SCTP: sctp }).filter(([, each]) => each);
  if (unknownFields !== undefined || given.length + (name ? 1 : 0) !== 1) return undefined;
  if (name) return name;
  const [[word, { destinationPort, ...rest } = {}] = []] = given;
  const protocol = PROTOCOLS.find((each) => each === word)!;
  if (rest.unknownFields !== undefined) return undefined;
  if (destinationPort === undefined) return { protocol, from: FIRST_PORT, to: LAST_PORT };
  const { number, range, unknownFields: unknown } = destinationPort;
  if (unknown ?? range?.unknownFields) return undefined;
  if ((number === undefined) === (range === undefined)) return undefined;
  const { start = 0, end = 0 } = range ?? { start: number, end: number };
  const [from, to] = [tryParsePort(start), tryParsePort(end)];
  return from === undefined || to === undefined || to < from ? undefined : { protocol, from, to };
}
