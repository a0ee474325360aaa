/**
 * Pods that policies cannot tell apart.
 *
 * @module
 */
import { CidrIndex } from "../net/cidr_cover.ts";
import type { IpFamily } from "../net/ip_address.ts";
import type { NestedBlocks } from "../net/nested_blocks.ts";
import type { LabelSelector } from "./label_selector.ts";
import type { PeerSource } from "./peer_source.ts";
import type { PeerSetId, PodKey } from "./policy_plan.ts";
import { addressesIn, type NamedPort, type PolicyPod, portFinder } from "./policy_pod.ts";
import type { PolicyState } from "./policy_state.ts";

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
  const distinctions = distinctionsOf(states, family);
  const groups = new Map<string, PodGroup & { readonly pods: PodKey[] }>();
  for (const pod of states[0].pods.values()) {
    const [address] = addressesIn(pod, family);
    if (address === undefined) continue;
    const blocks = new Set<PeerSetId>();
    for (const { id, isIn } of distinctions.blocks.itemsAt(address)) {
      if (isIn) blocks.add(id);
      else blocks.delete(id);
    }
    const key = signature(pod, { ...distinctions, blocks });
    const group = groups.get(key);
    if (group) group.pods.push(pod.key);
    else groups.set(key, { namespace: pod.namespace, pod, pods: [pod.key], blocks });
  }
  return [...groups.values()]
    .map((group) => ({ ...group, pods: group.pods.sort() }))
    .sort((left, right) => left.pods[0]! < right.pods[0]! ? -1 : 1);
}

function signature(
  pod: PolicyPod,
  { labels, names, blocks }: Omit<Distinctions, "blocks"> & Pick<PodGroup, "blocks">,
): string {
  return JSON.stringify([
    pod.namespace,
    Object.entries(pod.labels).filter(([key]) => labels.has(key)).sort(),
    names.values().map(portFinder(pod)).map((port) => port ?? 0).toArray(),
    [...blocks],
  ]);
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
