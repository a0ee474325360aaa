/**
 * The ports on which a pod may receive or send, for a kind of peer.
 *
 * @module
 */
import { hostCidr } from "../net/cidr.ts";
import { CidrIndex } from "../net/cidr_cover.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { BlockMatcher, type NestedBlocks } from "../net/nested_blocks.ts";
import { parsePort, PROTOCOLS } from "../net/port.ts";
import type { LabelSelector } from "./label_selector.ts";
import {
  type BlocksSource,
  matchesQuery,
  membersOf,
  type PeerSource,
  type PodSource,
} from "./peer_source.ts";
import { FIRST_PORT, LAST_PORT, mergePortRanges } from "./policy.ts";
import {
  type Direction,
  endOf,
  type PeerMember,
  type PeerSetId,
  type PodKey,
  type PolicyKey,
  type PortRange,
} from "./policy_plan.ts";
import { addressesIn, type NamedPort, type PolicyPod, portFinder } from "./policy_pod.ts";
import type { PolicyState } from "./policy_state.ts";
import {
  type ListNeed,
  MOST_RULES,
  RuleListCache,
  RuleRooms,
  type SourcedRuleList,
} from "./rule_lists.ts";

/** Ports of one protocol. `other`: what has no ports, such as an ICMP echo, as one range. */
export type AllowedRange =
  | PortRange
  | Pick<PortRange, "from" | "to"> & { readonly protocol: "other" };

/** Ports; `all` includes what has no ports. */
export type AllowedPorts = "all" | readonly AllowedRange[];

/** The other end of connections. */
export type Peer =
  | { readonly kind: "pod"; readonly pod: PolicyPod; readonly blocks: ReadonlySet<PeerSetId> }
  /** Addresses of no pod, in blocks that a rule names. */
  | { readonly kind: "blocks"; readonly members: NestedBlocks }
  /** The nodes that a rule names. */
  | { readonly kind: "nodes"; readonly id: PeerSetId }
  /** An address of no pod, and in no block that a rule names. */
  | { readonly kind: "outside" };

/** The rule that allows some ports. */
export interface Grant {
  /** Absent = no rule decides about these ports, and no policy isolates. */
  readonly policy?: PolicyKey;
  /** Place of the rule in `spec.ingress` or `spec.egress`. */
  readonly index?: number;
  readonly ports: AllowedPorts;
}

/** Finds the rules of any pod of the cluster, and what they allow. Good until the state changes. */
export class RuleBook {
  readonly #state: PolicyState;
  readonly #family: IpFamily;
  readonly #cache = new RuleListCache();
  readonly #rooms = new RuleRooms();
  /** Namespaces of nodes whose pods are in the rooms. */
  readonly #known = new Set<string>();

  constructor(state: PolicyState, family: IpFamily) {
    this.#state = state;
    this.#family = family;
  }

  /** The lists that the plan of the pod's node has for it, in the order of tiers. */
  rulesOf(pod: PolicyPod, direction: Direction): readonly SourcedRuleList[] {
    const needs = this.#needsOf(pod, direction);
    if (needs.length === 0) return [];
    const mostRules = this.#isRefused(pod) ? 0 : MOST_RULES;
    const of = { pod, direction, family: this.#family, mostRules };
    return this.#cache.listsOf(needs, this.#state.policiesOf(pod), of);
  }

  #needsOf(pod: PolicyPod, direction: Direction): readonly ListNeed[] {
    const of = { pod, direction, family: this.#family };
    return this.#cache.needsOf(this.#state.policiesOf(pod), of);
  }

  #isRefused({ key, namespace, nodeName }: PolicyPod): boolean {
    const place = `${nodeName ?? ""} ${namespace}`;
    if (!this.#known.has(place)) {
      this.#known.add(place);
      for (const pod of this.#state.podsIn(namespace)) {
        if (pod.nodeName !== nodeName || addressesIn(pod, this.#family).length === 0) continue;
        this.#rooms.set(pod, [...this.#needsOf(pod, "ingress"), ...this.#needsOf(pod, "egress")]);
      }
      this.#rooms.decide();
    }
    return this.#rooms.isRefused(key);
  }

  /** The rules that allow a peer something, and the ports about which none decides. */
  grantsOf(lists: readonly SourcedRuleList[], peer: Peer): readonly Grant[] {
    const grants: Grant[] = [];
    /** What the rules of former tiers, and those before in this one, leave to the next rule. */
    let open: AllowedPorts = "all";
    for (const { list, sources } of lists) {
      let passed: AllowedPorts = [];
      for (const { policy, index, action, peers, ports: own } of list.rules) {
        const found = peers?.flatMap((id) => sources.get(id) ?? []);
        const matched = this.#portsOf(own ?? "all", found, peer);
        if (matched === undefined) continue;
        const ports = commonPorts(matched, open);
        if (action === undefined) {
          if (ports.length > 0) grants.push({ policy, index, ports });
          continue;
        }
        if (action === "pass") passed = portsOfGrants([{ ports: passed }, { ports }]);
        open = portsWithout(open, ports);
      }
      open = endOf(list) === "deny" ? [] : portsOfGrants([{ ports: open }, { ports: passed }]);
    }
    return open.length === 0 ? grants : [...grants, { ports: open }];
  }

  /** `undefined` = the rule does not match the peer. */
  #portsOf(
    ports: AllowedPorts,
    sources: readonly PeerSource[] | undefined,
    peer: Peer,
  ): AllowedPorts | undefined {
    if (sources === undefined) return ports;
    const named: PortRange[] = [];
    for (const source of sources) {
      if (source.kind === "blocks") {
        if (isIn(source, peer)) return ports;
      } else if (source.kind === "nodes") {
        if (peer.kind === "nodes" && peer.id === source.id) return ports;
        if (peer.kind === "pod" && peer.blocks.has(source.id)) return ports;
      } else if (peer.kind === "pod") {
        for (const member of this.membersOf(source, peer.pod)) {
          if (typeof member === "string") return ports;
          named.push({ protocol: member.protocol, from: member.port, to: member.port });
        }
      }
    }
    return named.length > 0 ? mergePortRanges(named) : undefined;
  }

  /** What a pod adds to a set; nothing if it is none of the set's pods. */
  membersOf(source: PodSource, pod: PolicyPod): readonly PeerMember[] {
    const namespace = this.#state.namespaceLabels(pod.namespace);
    if (!matchesQuery(source.query, pod, namespace)) return [];
    return membersOf(source, pod, this.#family);
  }
}

/** Whether all addresses of a peer are in these blocks. */
function isIn({ id, members }: BlocksSource, peer: Peer): boolean {
  if (peer.kind !== "blocks") return peer.kind === "pod" && peer.blocks.has(id);
  return BlockMatcher.of(members).containsAll(BlockMatcher.of(peer.members));
}

/** Returns the ports that grants allow together. */
export function portsOfGrants(grants: readonly Pick<Grant, "ports">[]): AllowedPorts {
  const [first] = grants;
  if (grants.length === 1) return first!.ports;
  if (grants.some(({ ports }) => ports === "all")) return "all";
  const merged = mergePortRanges(
    grants.flatMap(({ ports }) => ports === "all" ? [] : ports),
    SPACE,
  );
  return portsWithout("all", merged).length === 0 ? "all" : merged;
}

/** Every protocol that rules distinguish. */
const SPACE = [...PROTOCOLS, "other"] as const;

const EVERY_PORT: readonly AllowedRange[] = SPACE.map((protocol) => {
  return { protocol, from: FIRST_PORT, to: LAST_PORT } as AllowedRange;
});

/** The first ports without the others. */
function portsWithout(ports: AllowedPorts, others: AllowedPorts): readonly AllowedRange[] {
  if (others === "all") return [];
  let rest = ports === "all" ? EVERY_PORT : ports;
  for (const other of others) {
    rest = rest.flatMap((range): readonly AllowedRange[] => {
      if (range.protocol !== other.protocol || other.to < range.from || range.to < other.from) {
        return [range];
      }
      return [
        ...(range.from < other.from ? [{ ...range, to: parsePort(other.from - 1) }] : []),
        ...(other.to < range.to ? [{ ...range, from: parsePort(other.to + 1) }] : []),
      ];
    });
  }
  return rest;
}

/** The ports that both allow. */
export function commonPorts(left: AllowedPorts, right: AllowedPorts): AllowedPorts {
  if (left === "all") return right;
  if (right === "all") return left;
  return left.flatMap((one) =>
    right.flatMap((other) => {
      const from = one.from > other.from ? one.from : other.from;
      const to = one.to < other.to ? one.to : other.to;
      const isCommon = one.protocol === other.protocol && from <= to;
      return isCommon ? [{ ...one, from, to }] : [];
    })
  );
}

/** E.g. `all`, `none`, `TCP 80,8000-8999 UDP 53` or `all but TCP 80`. */
export function portsText(ports: AllowedPorts): string {
  if (ports === "all") return "all";
  if (ports.length === 0) return "none";
  if (ports.some(({ protocol }) => protocol === "other")) {
    const denied = portsWithout("all", ports);
    return denied.length === 0 ? "all" : `all but ${portsText(denied)}`;
  }
  return [...Map.groupBy(ports, ({ protocol }) => protocol)].map(([protocol, ranges]) => {
    const texts = ranges.map(({ from, to }) => from === to ? `${from}` : `${from}-${to}`);
    return texts[0] === "1-65535" ? protocol : `${protocol} ${texts.join(",")}`;
  }).join(" ");
}

/** Pods of one namespace that every policy treats alike. */
export interface PodGroup {
  readonly namespace: string;
  /** Any of them stands for all. */
  readonly pod: PolicyPod;
  readonly pods: readonly PodKey[];
  /** The lists of blocks that their addresses are in. */
  readonly blocks: ReadonlySet<PeerSetId>;
}

/** The properties that policies distinguish. */
interface Distinctions {
  readonly labels: ReadonlySet<string>;
  readonly names: ReadonlyMap<string, NamedPort>;
  /** The lists of blocks, and whether a block belongs to its list or is an exception. */
  readonly blocks: CidrIndex<{ readonly id: PeerSetId; readonly isIn: boolean }>;
}

/** Groups the pods that have an address of a family, alike in each of the states of the same pods. */
export function podGroups(
  states: readonly [PolicyState, ...PolicyState[]],
  family: IpFamily,
): readonly PodGroup[] {
  const { labels, names, blocks: listed } = distinctionsOf(states, family);
  const groups = new Map<string, PodGroup & { readonly pods: PodKey[] }>();
  for (const pod of states[0].pods.values()) {
    const [address] = addressesIn(pod, family);
    if (address === undefined) continue;
    const blocks = new Set<PeerSetId>();
    for (const { id, isIn } of listed.itemsAt(address)) {
      if (isIn) blocks.add(id);
      else blocks.delete(id);
    }
    const key = JSON.stringify([
      pod.namespace,
      Object.entries(pod.labels).filter(([key]) => labels.has(key)).sort(),
      names.values().map(portFinder(pod)).map((port) => port ?? 0).toArray(),
      [...blocks],
    ]);
    const group = groups.get(key);
    if (group) group.pods.push(pod.key);
    else groups.set(key, { namespace: pod.namespace, pod, pods: [pod.key], blocks });
  }
  return [...groups.values()]
    .map((group) => ({ ...group, pods: group.pods.sort() }))
    .sort((left, right) => left.pods[0]! < right.pods[0]! ? -1 : 1);
}

function distinctionsOf(states: readonly PolicyState[], family: IpFamily): Distinctions {
  const labels = new Set<string>();
  const names = new Map<string, NamedPort>();
  const blocks: Distinctions["blocks"] = new CidrIndex();
  const known = new Set<string>();
  const addLabels = ({ requirements }: LabelSelector) => {
    for (const { key } of requirements) labels.add(key);
  };
  const addNames = (added: readonly NamedPort[] = []) => {
    for (const name of added) names.set(`${name.protocol} ${name.name}`, name);
  };
  const addBlocks = (id: PeerSetId, nested: NestedBlocks) => {
    for (const [cidr, isIn] of nested) blocks.add(cidr, { id, isIn });
  };
  const addSource = (source: PeerSource) => {
    if (known.has(source.id)) return;
    known.add(source.id);
    if (source.kind === "nodes") {
      for (const state of states) {
        for (const address of state.nodeAddresses()) {
          if (!state.isNode(address, source.selector)) continue;
          blocks.add(hostCidr(address), { id: source.id, isIn: true });
        }
      }
      return;
    }
    if (source.kind === "blocks") {
      addBlocks(source.id, source.members);
      return;
    }
    addLabels(source.query.pods);
    if (source.kind === "pod-ports") {
      addNames(source.names);
      if (source.within) addBlocks(source.id, source.within.members);
    }
  };
  for (
    const { subject, rules, names } of states.flatMap(({ policies }) => [...policies.values()])
  ) {
    if (subject) addLabels(subject.pods);
    addNames(names);
    for (const rule of [rules.ingress, rules.egress].flatMap((each) => each?.[family] ?? [])) {
      for (const source of rule.peers ?? []) addSource(source);
    }
  }
  return { labels, names, blocks };
}
