/**
 * Pods that policies cannot tell apart.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { RuleBook } from "./allowed_ports.ts";
import type { LabelSelector } from "./label_selector.ts";
import type { PeerSource } from "./peer_source.ts";
import type { PodKey } from "./policy_plan.ts";
import { addressesIn, findPort, type NamedPort, type PolicyPod } from "./policy_pod.ts";
import type { PolicyState } from "./policy_state.ts";

/** Pods of one namespace that every policy treats alike. */
export interface PodGroup {
  readonly namespace: string;
  /** Any of them stands for all. */
  readonly pod: PolicyPod;
  readonly pods: readonly PodKey[];
}

/** What policies look at. */
interface Distinctions {
  readonly labels: ReadonlySet<string>;
  readonly names: ReadonlyMap<string, NamedPort>;
  /** Lists of blocks, without those that hold every address. */
  readonly blocks: ReadonlyMap<string, ReadonlySet<Cidr>>;
}

/** Groups the pods that have an address of a family, alike in each of the states of the same pods. */
export function podGroups(
  states: readonly [PolicyState, ...PolicyState[]],
  family: IpFamily,
): readonly PodGroup[] {
  const distinctions = distinctionsOf(states, family);
  const book = new RuleBook(states[0], family);
  const groups = new Map<string, { pod: PolicyPod; pods: PodKey[] }>();
  for (const pod of states[0].pods.values()) {
    if (addressesIn(pod, family).length === 0) continue;
    const key = signature(pod, { ...distinctions, book });
    const group = groups.get(key);
    if (group) group.pods.push(pod.key);
    else groups.set(key, { pod, pods: [pod.key] });
  }
  return [...groups.values()]
    .map(({ pod, pods }) => ({ namespace: pod.namespace, pod, pods: pods.sort() }))
    .sort((left, right) => left.pods[0]! < right.pods[0]! ? -1 : 1);
}

function signature(
  pod: PolicyPod,
  { labels, names, blocks, book }: Distinctions & { readonly book: RuleBook },
): string {
  const peer = { kind: "pod", pod } as const;
  return JSON.stringify([
    pod.namespace,
    Object.entries(pod.labels).filter(([key]) => labels.has(key)).sort(),
    [...names.values()].map((name) => findPort(pod, name) ?? 0),
    [...blocks].filter(([, members]) => book.isIn(members, peer)).map(([id]) => id),
  ]);
}

function distinctionsOf(states: readonly PolicyState[], family: IpFamily): Distinctions {
  const labels = new Set<string>();
  const names = new Map<string, NamedPort>();
  const blocks = new Map<string, ReadonlySet<Cidr>>();
  const addLabels = ({ requirements }: LabelSelector) => {
    for (const { key } of requirements) labels.add(key);
  };
  const addNames = (added: readonly NamedPort[] = []) => {
    for (const name of added) names.set(`${name.protocol} ${name.name}`, name);
  };
  const addSource = (source: PeerSource) => {
    if (source.kind === "blocks") {
      if (!isEverything(source.members)) blocks.set(source.id, source.members);
      return;
    }
    addLabels(source.query.pods);
    if (source.kind === "pod-ports") {
      addNames(source.names);
      if (source.within) blocks.set(source.id, new Set(source.within.outermost));
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

function isEverything(blocks: ReadonlySet<Cidr>): boolean {
  return [...blocks].some((cidr) => cidr.endsWith("/0"));
}
