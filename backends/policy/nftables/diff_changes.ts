/**
 * Computes one transaction that changes a known table to that of a plan. Pure.
 *
 * A chain is only emptied when the element that led to it goes, and deleted by the next transaction:
 * before kernel 6.2, an element that is deleted by the same transaction still holds its chain.
 *
 * @module
 */
import type {
  PeerSetChange,
  PeerSetId,
  PodKey,
  PodPlan,
  PolicyPlan,
  PolicyPlanChanges,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import type { NftContainer, NftElement } from "../../netfilter/nft/nft_objects.ts";
import {
  type ChainChange,
  type ElementChange,
  NftTransaction,
} from "../../netfilter/nft/nft_transaction.ts";
import type { RefusedParts } from "../policy_quarantine.ts";
import type { AppliedChanges, AppliedPolicies, TableDifference } from "./applied_policies.ts";
import {
  fixedContainers,
  listChain,
  memberKey,
  peerKeys,
  peersContainer,
  peersName,
  podChains,
  podElements,
  policyTable,
  PORT_SET,
  type PortSet,
} from "./layout.ts";
import { type Part, writeList } from "./wanted_table.ts";

/** Sets and lists between two pauses. */
const PARTS_PER_STEP = 128;
/** Keys of one set between two pauses. */
const KEYS_PER_STEP = 512;

/** Returns the difference between a known table and the plan. The cost depends on the changes. */
export function* diffChanges(
  plan: PolicyPlan,
  changes: PolicyPlanChanges,
  { applied, refused }: { readonly applied: AppliedPolicies; readonly refused: RefusedParts },
): Generator<void, TableDifference> {
  const draft = new ChangesDraft(plan, applied, refused);
  let seen = 0;
  for (const id of new Set([...changes.peers, ...applied.leftOutPeers(plan)])) {
    yield* draft.takePeers(id);
    if (++seen % PARTS_PER_STEP === 0) yield;
  }
  for (const [id, change] of changes.members) {
    if (!changes.peers.has(id)) draft.takeMembers(id, change);
  }
  for (const id of new Set([...changes.lists, ...applied.leftOutLists()])) {
    draft.takeList(id);
    if (++seen % PARTS_PER_STEP === 0) yield;
  }
  draft.takePods(changes.pods);
  return yield* draft.end();
}

/** Elements by set or map, and by key. */
type Changes = Map<string, Map<string, ElementChange<Part, string>>>;

/** The changes, while they are collected. */
class ChangesDraft {
  readonly #plan: PolicyPlan;
  readonly #applied: AppliedPolicies;
  readonly #refused: RefusedParts;
  readonly #containers: Map<string, NftContainer>;
  readonly #declared: string[] = [];
  readonly #emptied: string[] = [];
  readonly #removedContainers: { readonly kind: "set"; readonly name: string }[] = [];
  readonly #chains: ChainChange<Part>[] = [];
  readonly #idle = new Set<string>();
  readonly #removed: Changes = new Map();
  readonly #added: Changes = new Map();
  readonly #pods: (readonly [PodKey, PodPlan | undefined])[] = [];
  readonly #lists: AppliedChanges["lists"][number][] = [];
  readonly #peers: (readonly [PeerSetId, boolean])[] = [];
  readonly #portSets = new Map<string, { readonly keys: readonly string[]; uses: number }>();

  constructor(plan: PolicyPlan, applied: AppliedPolicies, refused: RefusedParts) {
    this.#plan = plan;
    this.#applied = applied;
    this.#refused = refused;
    this.#containers = new Map(fixedContainers(plan.family));
  }

  #remove(element: NftElement): void {
    note(this.#removed, { element });
  }

  /** Keeps an element that one pod loses and another one gets. */
  #add(element: NftElement, owner?: Part): void {
    const removed = this.#removed.get(element.container);
    const old = removed?.get(element.key)?.element;
    if (old && old.value === element.value) removed?.delete(element.key);
    else note(this.#added, { element, owner });
  }

  *takePeers(id: PeerSetId): Generator<void> {
    const set = this.#plan.peers.get(id);
    const name = peersName(id);
    const isThere = this.#applied.peers.has(id);
    if (set === undefined || this.#refused.has(name)) {
      if (isThere) this.#removedContainers.push({ kind: "set", name });
      if (isThere) this.#peers.push([id, false]);
      return;
    }
    const container = peersContainer(set, this.#plan.family);
    this.#containers.set(name, container);
    if (isThere) this.#emptied.push(name);
    else this.#declared.push(name);
    this.#peers.push([id, true]);
    let seen = 0;
    for (const key of peerKeys(set)) {
      this.#add({ container: name, key }, name);
      if (++seen % KEYS_PER_STEP === 0) yield;
    }
  }

  takeMembers(id: PeerSetId, { added, removed }: PeerSetChange): void {
    const set = this.#plan.peers.get(id);
    if (set === undefined || !this.#applied.peers.has(id)) return;
    const container = peersName(id);
    this.#containers.set(container, peersContainer(set, this.#plan.family));
    for (const member of removed) this.#remove({ container, key: memberKey(member) });
    for (const member of added) this.#add({ container, key: memberKey(member) }, container);
  }

  takeList(id: RuleListId): void {
    const list = this.#plan.lists.get(id);
    const before = this.#applied.lists.get(id);
    if (list === undefined) {
      if (before === undefined) return;
      this.#retire(listChain(id));
      this.#countPortSets(before.portSets, -1);
      this.#lists.push([id, undefined]);
      return;
    }
    const written = writeList(id, list, { plan: this.#plan, refused: this.#refused });
    // Its name determines its content.
    if (before && `${[...before.leftOut]}` === `${[...written.leftOut]}`) return;
    this.#chains.push(written.chain);
    this.#countPortSets(before?.portSets ?? [], -1);
    this.#countPortSets(written.portSets, 1);
    this.#lists.push([id, written]);
  }

  takePods(keys: ReadonlySet<PodKey>): void {
    const plan = this.#plan;
    const unused = new Set<string>();
    for (const key of keys) {
      const before = this.#applied.pods.get(key);
      if (before === undefined) continue;
      for (const element of podElements(before, plan)) this.#remove(element);
      for (const { name } of podChains(before, plan)) unused.add(name);
    }
    for (const key of keys) {
      const pod = plan.pods.get(key);
      this.#pods.push([key, pod]);
      if (pod === undefined) continue;
      for (const element of podElements(pod, plan)) this.#add(element);
      for (const chain of podChains(pod, plan)) {
        this.#chains.push(chain);
        unused.delete(chain.name);
      }
    }
    for (const name of unused) this.#retire(name);
  }

  /** Removes its rules now, because they name sets that may be removed, and the chain the next time. */
  #retire(name: string): void {
    this.#chains.push({ name, rules: [] });
    this.#idle.add(name);
  }

  #countPortSets(sets: readonly PortSet[], step: 1 | -1): void {
    for (const { name, keys } of sets) {
      const known = this.#portSets.get(name) ?? { keys, uses: this.#applied.portSetUses(name) };
      known.uses += step;
      this.#portSets.set(name, known);
    }
  }

  *end(): Generator<void, TableDifference> {
    for (const [name, { keys, uses }] of this.#portSets) {
      const isThere = this.#applied.portSetUses(name) > 0;
      if (uses === 0 && isThere) this.#removedContainers.push({ kind: "set", name });
      if (uses === 0 || isThere) continue;
      this.#containers.set(name, PORT_SET);
      this.#declared.push(name);
      for (const key of keys) this.#add({ container: name, key }, name);
    }
    const made = new Set(this.#chains.map(({ name }) => name));
    const removedChains = [...this.#applied.idle].filter((name) => !made.has(name));
    const spec = { ...policyTable(this.#plan.family), containers: this.#containers };
    const transaction = yield* NftTransaction.steps<Part, string>(spec, {
      ...(this.#declared.length > 0 && { declared: this.#declared }),
      emptied: this.#emptied,
      chains: this.#chains,
      removed: listsOf(this.#removed),
      added: listsOf(this.#added),
      removedChains,
      removedContainers: this.#removedContainers,
    });
    return {
      transaction,
      applied: {
        isWhole: false,
        pods: this.#pods,
        lists: this.#lists,
        peers: this.#peers,
        chains: [...made].filter((name) => !this.#idle.has(name)),
        idle: [...this.#idle],
      },
    };
  }
}

function note(changes: Changes, change: ElementChange<Part, string>): void {
  const { container, key } = change.element;
  const known = changes.get(container);
  if (known) known.set(key, change);
  else changes.set(container, new Map([[key, change]]));
}

function listsOf(changes: Changes): Map<string, readonly ElementChange<Part, string>[]> {
  return new Map([...changes].map(([name, elements]) => [name, [...elements.values()]]));
}
