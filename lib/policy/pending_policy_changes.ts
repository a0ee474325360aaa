/**
 * Collects what is different from the last plan that was synced.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import {
  type PeerSetChange,
  type PeerSetId,
  type PodKey,
  type PodPort,
  podPortKey,
  type PolicyPlanChanges,
  type RuleListId,
} from "./policy_plan.ts";

/** A member of a set of pods. */
export type PeerMember = IpAddress | PodPort;

/** Identifies a member in its set. */
export function memberKey(member: PeerMember): string {
  return typeof member === "string" ? member : podPortKey(member);
}

interface MemberChange {
  readonly member: PeerMember;
  readonly isAdded: boolean;
}

/** Changes that no sync has applied yet. Everything may be different until the first one. */
export class PendingPolicyChanges {
  #full = true;
  #pods = new Set<PodKey>();
  #lists = new Set<RuleListId>();
  #peers = new Set<PeerSetId>();
  #members = new Map<PeerSetId, Map<string, MemberChange>>();

  /** Marks every part of the plan as changed. */
  markAll(): void {
    this.#full = true;
  }

  /** A pod came, went, or has other addresses or lists. */
  markPod(key: PodKey): void {
    this.#pods.add(key);
  }

  /** A list came or went. */
  markList(id: RuleListId): void {
    this.#lists.add(id);
  }

  /** A set came or went. What it gained and lost before says nothing any more. */
  markPeers(id: PeerSetId): void {
    this.#peers.add(id);
    this.#members.delete(id);
  }

  /** A set gained or lost a member. */
  markMember(id: PeerSetId, change: MemberChange): void {
    if (this.#peers.has(id)) return;
    let known = this.#members.get(id);
    if (known === undefined) this.#members.set(id, known = new Map());
    const key = memberKey(change.member);
    const other = known.get(key);
    if (other === undefined) known.set(key, change);
    else if (other.isAdded !== change.isAdded) known.delete(key);
    if (known.size === 0) this.#members.delete(id);
  }

  /** The changes so far; the next ones count from here. */
  take(): PolicyPlanChanges {
    const members = new Map<PeerSetId, PeerSetChange>();
    for (const [id, changes] of this.#members) {
      const list = [...changes.values()];
      members.set(id, {
        added: list.filter(({ isAdded }) => isAdded).map(({ member }) => member),
        removed: list.filter(({ isAdded }) => !isAdded).map(({ member }) => member),
      });
    }
    const taken = {
      full: this.#full,
      pods: this.#pods,
      lists: this.#lists,
      peers: this.#peers,
      members,
    };
    this.#full = false;
    this.#pods = new Set();
    this.#lists = new Set();
    this.#peers = new Set();
    this.#members = new Map();
    return taken;
  }
}
