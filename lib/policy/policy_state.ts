/**
 * Pods, namespaces and policies of the cluster, kept from events in any order.
 *
 * @module
 */
import { SetIndex } from "../net/set_index.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { Namespace } from "../api/kinds/namespace.ts";
import type { NetworkPolicy } from "../api/kinds/network_policy.ts";
import type { Pod } from "../api/kinds/pod.ts";
import { NAMESPACE_NAME_LABEL } from "../api/labels.ts";
import { type Labels, matchesLabels, SelectorIndex, type SelectorPlace } from "./label_selector.ts";
import type { NamespaceLabels, PodQuery } from "./peer_source.ts";
import { Policy } from "./policy.ts";
import { NamespaceBudget } from "./policy_budget.ts";
import type { PodKey, PolicyKey } from "./policy_plan.ts";
import { isSamePod, ownerAmong, parsePod, type PolicyPod } from "./policy_pod.ts";

/** Follows the state. Each call comes after the state has changed, and only if something did. */
export interface PolicyStateListener {
  podChanged(key: PodKey, previous: PolicyPod | undefined): void;
  namespaceChanged(name: string, previous: NamespaceLabels): void;
  /** Takes the policies that came or went: of one that changed, both states. */
  policiesChanged(policies: readonly Policy[]): void;
}

/** The cluster as policies see it. */
export class PolicyState {
  readonly #pods = new Map<PodKey, PolicyPod>();
  readonly #podsByNamespace = new SetIndex<string, PolicyPod>();
  readonly #podsByAddress = new SetIndex<IpAddress, PolicyPod>();
  readonly #namespaces = new Map<string, Labels>();
  readonly #policies = new Map<PolicyKey, Policy>();
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

  /** Takes a policy as it is now; `undefined` = deleted. */
  setPolicy(key: PolicyKey, object: NetworkPolicy | undefined): void {
    const previous = this.#policies.get(key);
    const current = object && new Policy(object);
    const { namespace } = current ?? previous ?? {};
    if (namespace === undefined) return;
    const budget = this.#budgets.getOrInsertComputed(namespace, () => new NamespaceBudget());
    const moved = budget.change(key, current);
    if (budget.isEmpty) this.#budgets.delete(namespace);
    const isAdmitted = current === undefined || budget.isAdmitted(key);
    const changed = [this.#replace(key, isAdmitted ? current : current.withAdmission(false))];
    for (const key of moved) {
      changed.push(
        this.#replace(key, this.#policies.get(key)!.withAdmission(budget.isAdmitted(key))),
      );
    }
    for (const listener of this.#listeners) listener.policiesChanged(changed.flat());
  }

  /** Puts a policy in the place of another one. Returns both. */
  #replace(key: PolicyKey, current: Policy | undefined): readonly Policy[] {
    const previous = this.#policies.get(key);
    if (previous) {
      this.#targets.delete(previous, targetPlace(previous));
      this.#policies.delete(key);
    }
    if (current) {
      this.#policies.set(key, current);
      this.#targets.add(current, targetPlace(current));
    }
    return [previous, current].filter((policy) => policy !== undefined);
  }

  /** The policies that select a pod, sorted by key. */
  policiesOf(pod: PolicyPod): readonly Policy[] {
    const found = new Set<Policy>();
    for (const policy of this.#targets.candidates(pod.namespace, pod.labels)) {
      if (matchesLabels(policy.podSelector, pod.labels)) found.add(policy);
    }
    return [...found].sort((left, right) => left.key < right.key ? -1 : 1);
  }

  /**
   * The labels of a namespace. Of one that is not known (its event may come after those of its pods, or a
   * folder of manifests does not define it) only the label with its name counts: selectors that want
   * another label absent or different do not match it.
   */
  namespaceLabels(name: string): NamespaceLabels {
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

function targetPlace({ namespace, podSelector }: Policy): SelectorPlace {
  return { scope: namespace, selector: podSelector };
}
