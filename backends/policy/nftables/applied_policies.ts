/**
 * The known content of the table. Members of sets are not kept: each plan contains the differences
 * from the last one. Pure except for its own state.
 *
 * @module
 */
import type {
  PeerSetId,
  PodKey,
  PodPlan,
  PolicyPlan,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import type { NftTransaction } from "../../netfilter/nft/nft_transaction.ts";
import type { Part, WrittenList } from "./wanted_table.ts";

/** The changes of an accepted transaction. `undefined` and `false` = removed. */
export interface AppliedChanges {
  /** Whether these changes are the whole content of the table. */
  readonly isWhole: boolean;
  readonly pods: readonly (readonly [PodKey, PodPlan | undefined])[];
  readonly lists: readonly (readonly [RuleListId, WrittenList | undefined])[];
  readonly peers: readonly (readonly [PeerSetId, boolean])[];
  /** Chains that were made or written. */
  readonly chains: readonly string[];
  /** Empty chains without a jump to them. The transaction deletes the earlier ones. */
  readonly idle: readonly string[];
}

/** A transaction, and the content of the table after it. */
export interface TableDifference {
  readonly transaction: NftTransaction<Part>;
  readonly applied: AppliedChanges;
}

/** The table, as it was written. */
export class AppliedPolicies {
  readonly pods = new Map<PodKey, PodPlan>();
  readonly lists = new Map<RuleListId, WrittenList>();
  readonly peers = new Set<PeerSetId>();
  readonly chains = new Set<string>();
  readonly #portSetUses = new Map<string, number>();
  /** Lists without the rules of some policies. */
  readonly #incomplete = new Set<RuleListId>();
  #idle: ReadonlySet<string> = new Set();

  get idle(): ReadonlySet<string> {
    return this.#idle;
  }

  /** Returns the number of lists whose rules use a set of ports. */
  portSetUses(name: string): number {
    return this.#portSetUses.get(name) ?? 0;
  }

  leftOutLists(): Iterable<RuleListId> {
    return this.#incomplete;
  }

  /** Sets that the plan has and the table does not. */
  leftOutPeers({ peers }: PolicyPlan): Iterable<PeerSetId> {
    if (this.#incomplete.size === 0) return [];
    return [...peers.keys()].filter((id) => !this.peers.has(id));
  }

  /** Records an accepted transaction. */
  confirm({ isWhole, pods, lists, peers, chains, idle }: AppliedChanges): void {
    if (isWhole) {
      for (const each of [this.pods, this.lists, this.peers, this.chains]) each.clear();
      for (const each of [this.#portSetUses, this.#incomplete]) each.clear();
    }
    for (const [key, pod] of pods) {
      if (pod) this.pods.set(key, pod);
      else this.pods.delete(key);
    }
    for (const [id, list] of lists) this.#confirmList(id, list);
    for (const [id, isThere] of peers) {
      if (isThere) this.peers.add(id);
      else this.peers.delete(id);
    }
    for (const name of chains) this.chains.add(name);
    for (const name of idle) this.chains.delete(name);
    this.#idle = new Set(idle);
  }

  #confirmList(id: RuleListId, list: WrittenList | undefined): void {
    const count = ({ portSets }: WrittenList, step: 1 | -1) => {
      for (const { name } of portSets) {
        const uses = this.portSetUses(name) + step;
        if (uses > 0) this.#portSetUses.set(name, uses);
        else this.#portSetUses.delete(name);
      }
    };
    const before = this.lists.get(id);
    if (before) count(before, -1);
    this.lists.delete(id);
    this.#incomplete.delete(id);
    if (list === undefined) return;
    this.lists.set(id, list);
    count(list, 1);
    if (list.leftOut.size > 0) this.#incomplete.add(id);
  }
}
