/**
 * Pods, namespaces and policies of the cluster, kept from events in any order.
 *
 * @module
 */
import { SetIndex } from "../net/set_index.ts";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import type { ClusterNetworkPolicy } from "../api/kinds/cluster_network_policy.ts";
import type { Namespace } from "../api/kinds/namespace.ts";
import type { NetworkPolicy } from "../api/kinds/network_policy.ts";
import type { Pod } from "../api/kinds/pod.ts";
import { NAMESPACE_NAME_LABEL } from "../api/labels.ts";
import { clusterPolicy } from "./cluster_policy.ts";
import { type Labels, type LabelSelector, matchesLabels, SelectorIndex } from "./label_selector.ts";
import { itemsMatching, type NamespaceLabels, placeOfQuery, type PodQuery } from "./peer_source.ts";
import { networkPolicy, type Policy } from "./policy.ts";
import { NamespaceBudget } from "./policy_budget.ts";
import type { PodKey, PolicyKey } from "./policy_plan.ts";
import { isSamePod, ownerAmong, parsePod, type PolicyPod } from "./policy_pod.ts";

/** Follows the state. Each call comes after the state has changed, and only if something did. */
export interface PolicyStateListener {
  podChanged(key: PodKey, previous: PolicyPod | undefined): void;
  namespaceChanged(name: string, previous: NamespaceLabels): void;
  /** Takes the policies that came or went: of one that changed, both states. */
  policiesChanged(policies: readonly Policy[]): void;
  /** Takes the addresses that a node had and has. */
  nodeChanged(addresses: readonly IpAddress[]): void;
}

/** The cluster as policies see it. */
export class PolicyState {
  readonly #pods = new Map<PodKey, PolicyPod>();
  readonly #podsByNamespace = new SetIndex<string, PolicyPod>();
  readonly #podsByAddress = new SetIndex<IpAddress, PolicyPod>();
  readonly #namespaces = new Map<string, Labels>();
  readonly #nodes = new Map<string, PeerNode>();
  readonly #nodesByAddress = new SetIndex<IpAddress, PeerNode>();
  readonly #policies = new Map<PolicyKey, Policy>();
  readonly #objects = new Map<PolicyKey, NetworkPolicy>();
  readonly #budgets = new Map<string, NamespaceBudget>();
  readonly #targets = new SelectorIndex<Policy>();
  readonly #listeners: PolicyStateListener[] = [];

  /** Reports every change from now on. */
  follow(listener: PolicyStateListener): void {
    this.#listeners.push(listener);
  }

  /** The pods that policies concern. */
  get pods(): ReadonlyMap<PodKey, PolicyPod> {
    return this.#pods;
  }

  /** The policies, with the problems of each. */
  get policies(): ReadonlyMap<PolicyKey, Policy> {
    return this.#policies;
  }

  /** Takes a pod as it is now; `undefined` = deleted. */
  setPod(key: PodKey, object: Pod | undefined): void {
    const previous = this.#pods.get(key);
    const current = object && parsePod(key, object);
    if (previous === current) return;
    if (previous && current && isSamePod(previous, current)) {
      // The informer drops the old object: a reference to it would keep both in memory.
      Object.assign(previous, current, { addresses: previous.addresses });
      return;
    }
    this.#replacePod(previous, current);
    const changed = new Map([[key, previous]]);
    const touched = new Set([...previous?.claimed ?? [], ...current?.claimed ?? []]);
    for (const pod of new Set([...touched].flatMap((each) => [...this.podsWith(each)]))) {
      const addresses = pod.claimed.filter((each) => this.ownerOf(each)?.key === pod.key);
      if (`${addresses}` === `${pod.addresses}`) continue;
      // One that comes to stand for an address, or no longer does, has changed as well.
      if (pod.key !== key) changed.set(pod.key, pod);
      const isAll = addresses.length === pod.claimed.length;
      this.#replacePod(pod, { ...pod, addresses: isAll ? pod.claimed : addresses });
    }
    for (const listener of this.#listeners) {
      for (const [key, previous] of changed) listener.podChanged(key, previous);
    }
  }

  #replacePod(previous: PolicyPod | undefined, current: PolicyPod | undefined): void {
    if (previous) {
      this.#pods.delete(previous.key);
      this.#podsByNamespace.delete(previous.namespace, previous);
      for (const address of previous.claimed) this.#podsByAddress.delete(address, previous);
    }
    if (current) {
      this.#pods.set(current.key, current);
      this.#podsByNamespace.add(current.namespace, current);
      for (const address of current.claimed) this.#podsByAddress.add(address, current);
    }
  }

  /** The pods whose status has an address. */
  podsWith(address: IpAddress): Iterable<PolicyPod> {
    return this.#podsByAddress.at(address);
  }

  /** The pod that stands for an address. */
  ownerOf(address: IpAddress): PolicyPod | undefined {
    return ownerAmong(this.podsWith(address));
  }

  /** Takes a namespace as it is now; `undefined` = deleted. */
  setNamespace(name: string, object: Namespace | undefined): void {
    const previous = this.namespaceLabels(name);
    if (object) {
      this.#namespaces.set(name, { ...object.metadata.labels, [NAMESPACE_NAME_LABEL]: name });
    } else if (!this.#namespaces.delete(name)) return;
    for (const listener of this.#listeners) listener.namespaceChanged(name, previous);
  }

  /** Takes a NetworkPolicy as it is now; `undefined` = deleted. */
  setPolicy(key: PolicyKey, object: NetworkPolicy | undefined): void {
    const slash = key.indexOf("/");
    const namespace = key.slice(0, slash);
    if (object) this.#objects.set(key, object);
    else if (!this.#objects.delete(key)) return;
    const current = object && networkPolicy(object);
    const budget = this.#budgets.getOrInsertComputed(namespace, () => new NamespaceBudget());
    const moved = budget.change(key, current);
    if (budget.isEmpty) this.#budgets.delete(namespace);
    const read = (key: PolicyKey) =>
      networkPolicy(this.#objects.get(key)!, { isAdmitted: budget.isAdmitted(key) });
    const isAdmitted = current === undefined || budget.isAdmitted(key);
    const changed = [this.#replace(key, isAdmitted ? current : read(key))];
    for (const each of moved) changed.push(this.#replace(each, read(each)));
    for (const listener of this.#listeners) listener.policiesChanged(changed.flat());
  }

  /** Takes a ClusterNetworkPolicy as it is now; `undefined` = deleted. */
  setClusterPolicy(key: PolicyKey, object: ClusterNetworkPolicy | undefined): void {
    const changed = this.#replace(key, object && clusterPolicy(object));
    for (const listener of this.#listeners) listener.policiesChanged(changed);
  }

  /** Takes a node as it is now; `undefined` = deleted. */
  setNode(name: string, object: PolicyNode | undefined): void {
    const previous = this.#nodes.get(name);
    const current = object && parseNode(object);
    if (JSON.stringify(previous) === JSON.stringify(current)) return;
    if (current) this.#nodes.set(name, current);
    else this.#nodes.delete(name);
    const addresses = { from: previous?.addresses ?? [], to: current?.addresses ?? [] };
    for (const address of addresses.from) this.#nodesByAddress.delete(address, previous!);
    for (const address of addresses.to) this.#nodesByAddress.add(address, current!);
    const touched = [...new Set([...addresses.from, ...addresses.to])];
    for (const listener of this.#listeners) listener.nodeChanged(touched);
  }

  /** The addresses of all nodes. */
  nodeAddresses(): Iterable<IpAddress> {
    return this.#nodesByAddress.keys();
  }

  /** Whether a node that a selector matches has an address. */
  isNode(address: IpAddress, selector: LabelSelector): boolean {
    return [...this.#nodesByAddress.at(address)].some(({ labels }) =>
      matchesLabels(selector, labels)
    );
  }

  /** Puts a policy in the place of another one. Returns both. */
  #replace(key: PolicyKey, current: Policy | undefined): readonly Policy[] {
    const previous = this.#policies.get(key);
    if (previous) {
      if (previous.subject) this.#targets.delete(previous, placeOfQuery(previous.subject));
      this.#policies.delete(key);
    }
    if (current) {
      this.#policies.set(key, current);
      if (current.subject) this.#targets.add(current, placeOfQuery(current.subject));
    }
    return [previous, current].filter((policy) => policy !== undefined);
  }

  /** The policies that select a pod, sorted by priority and key: in each tier, the order in which they count. */
  policiesOf(pod: PolicyPod): readonly Policy[] {
    const namespace = this.#labelsOf(pod.namespace);
    const found = itemsMatching(this.#targets, ({ subject }) => subject!, pod, namespace);
    return [...found].sort((left, right) =>
      left.priority - right.priority || (left.key < right.key ? -1 : 1)
    );
  }

  /**
   * The labels of a namespace. Of one that is not known (its event may come after those of its pods, or a
   * folder of manifests does not define it) only the label with its name counts: selectors that want
   * another label absent or different do not match it.
   */
  namespaceLabels(name: string): NamespaceLabels {
    return this.#labelsOf(name);
  }

  #labelsOf(name: string): NamespaceLabels {
    const labels = this.#namespaces.get(name);
    return labels
      ? { labels, isPartial: false }
      : { labels: { [NAMESPACE_NAME_LABEL]: name }, isPartial: true };
  }

  /** The pods of a namespace. */
  podsIn(namespace: string): Iterable<PolicyPod> {
    return this.#podsByNamespace.at(namespace);
  }

  /** Returns the pods that match a query. Tests all pods of the namespaces in its scope. */
  *podsOf(query: PodQuery): Generator<PolicyPod, void, void> {
    const { scope, pods } = query;
    const names = scope.kind === "namespace" ? [scope.name] : this.#podsByNamespace.keys();
    for (const name of names) {
      const namespace = this.namespaceLabels(name);
      if (
        scope.kind === "namespaces" && !matchesLabels(scope.selector, namespace.labels, namespace)
      ) continue;
      for (const pod of this.podsIn(name)) if (matchesLabels(pods, pod.labels)) yield pod;
    }
  }
}

/** A Node, as far as policies read it. */
interface PolicyNode {
  readonly metadata: { readonly labels?: Labels };
  readonly status: { readonly addresses?: readonly { readonly address: string }[] };
}

interface PeerNode {
  readonly labels: Labels;
  /** Sorted and unique. */
  readonly addresses: readonly IpAddress[];
}

/** Of the addresses of a Node, some are names of hosts. */
function parseNode(
  { metadata: { labels = {} }, status: { addresses = [] } }: PolicyNode,
): PeerNode {
  const found = addresses.map(({ address }) => tryParseIpAddress(address));
  return { labels, addresses: [...new Set(found)].filter((each) => each !== undefined).sort() };
}
