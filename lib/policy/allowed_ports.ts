/**
 * The ports on which a pod may receive or send, for a kind of peer.
 *
 * @module
 */
import { CidrIndex } from "../net/cidr_cover.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { BlockMatcher, type NestedBlocks } from "../net/nested_blocks.ts";
import type { LabelSelector } from "./label_selector.ts";
import {
  type BlocksSource,
  matchesQuery,
  membersOf,
  type PeerSource,
  type PodSource,
} from "./peer_source.ts";
import { mergePortRanges } from "./policy.ts";
import type {
  Direction,
  PeerMember,
  PeerSetId,
  PodKey,
  PolicyKey,
  PortRange,
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

/** Ports; `all` includes what has no ports, such as an ICMP echo. */
export type AllowedPorts = "all" | readonly PortRange[];

/** The other end of connections. */
export type Peer =
  | { readonly kind: "pod"; readonly pod: PolicyPod; readonly blocks: ReadonlySet<PeerSetId> }
  /** Addresses of no pod, in blocks that a rule names. */
  | { readonly kind: "blocks"; readonly members: NestedBlocks }
  /** An address of no pod, and in no block that a rule names. */
  | { readonly kind: "outside" };

/** The rule that allows some ports. */
export interface Grant {
  readonly policy: PolicyKey;
  /** Place of the rule in `spec.ingress` or `spec.egress`. */
  readonly index: number;
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

  /** The list that the plan of the pod's node has for it; `undefined` = not isolated. */
  rulesOf(pod: PolicyPod, direction: Direction): SourcedRuleList | undefined {
    const need = this.#needOf(pod, direction);
    if (need === undefined) return undefined;
    const mostRules = this.#isRefused(pod) ? 0 : MOST_RULES;
    const of = { pod, direction, family: this.#family, mostRules };
    return this.#cache.listOf(need, this.#state.policiesOf(pod), of);
  }

  #needOf(pod: PolicyPod, direction: Direction): ListNeed | undefined {
    const of = { pod, direction, family: this.#family };
    return this.#cache.needOf(this.#state.policiesOf(pod), of);
  }

  #isRefused({ key, namespace, nodeName }: PolicyPod): boolean {
    const place = `${nodeName ?? ""} ${namespace}`;
    if (!this.#known.has(place)) {
      this.#known.add(place);
      for (const pod of this.#state.podsIn(namespace)) {
        if (pod.nodeName !== nodeName || addressesIn(pod, this.#family).length === 0) continue;
        this.#rooms.set(pod, [this.#needOf(pod, "ingress"), this.#needOf(pod, "egress")]);
      }
      this.#rooms.decide();
    }
    return this.#rooms.isRefused(key);
  }

  /** The rules that allow a peer something. */
  grantsOf({ list, sources }: SourcedRuleList, peer: Peer): readonly Grant[] {
    return list.rules.flatMap((rule) => {
      const found = rule.peers?.flatMap((id) => sources.get(id) ?? []);
      const ports = this.#portsOf(rule.ports ?? "all", found, peer);
      return ports === undefined ? [] : [{ policy: rule.policy, index: rule.index, ports }];
    });
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

/** Returns the ports that grants allow together; `undefined` = the pod is not isolated. */
export function portsOfGrants(grants: readonly Grant[] | undefined): AllowedPorts {
  if (grants === undefined || grants.some(({ ports }) => ports === "all")) return "all";
  return mergePortRanges(grants.flatMap(({ ports }) => ports === "all" ? [] : ports));
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
      return isCommon ? [{ protocol: one.protocol, from, to }] : [];
    })
  );
}

/** E.g. `all`, `none` or `TCP 80,8000-8999 UDP 53`. */
export function portsText(ports: AllowedPorts): string {
  if (ports === "all") return "all";
  if (ports.length === 0) return "none";
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
    const { podSelector, rules, names } of states.flatMap(({ policies }) => [...policies.values()])
  ) {
    addLabels(podSelector);
    addNames(names);
    for (const rule of [rules.ingress, rules.egress].flatMap((each) => each?.[family] ?? [])) {
      for (const source of rule.peers ?? []) addSource(source);
    }
  }
  return { labels, names, blocks };
}
