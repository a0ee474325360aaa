import type { Lease } from "../api/kinds/lease.ts";
import { hashText } from "../net/text_hash.ts";

/** The names of two Leases of each node have these in front of the name of the node. */
const [MEMBER, HEARTBEAT] = ["kube-relay-member-", "kube-relay-heartbeat-"];
/** The number of nodes that watch the heartbeat of a node: one of them may fail with it. */
const WATCHERS = 2;
/** A node without addresses renews its heartbeat this much less often. */
const IDLE_FACTOR = 10;
/** A heartbeat that was edited by hand must not keep a dead node alive for longer. */
const LONGEST_MS = 600_000;
/**
 * Parts of the duration of a heartbeat. After the first part without a renewal, the API server is
 * asked. After the second part, the node is gone; the rest is for the node that takes over. For the
 * third part, the API server must have answered without a break, so that an outage of the API server
 * is no death of nodes.
 */
const [OVERDUE, GONE, ANSWERED] = [0.4, 0.85, 0.4];
/** Time between two questions, as a part of the duration. */
const ASK = 1 / 6;

/** Returns the name of the Lease that shows that a node takes part. It changes only when that does. */
export function memberLeaseName(node: string): string {
  return `${MEMBER}${node}`;
}

/** Returns the name of the Lease that a node renews all the time. */
export function heartbeatLeaseName(node: string): string {
  return `${HEARTBEAT}${node}`;
}

/** Returns the node of a Lease of a member; `undefined` for the Lease of something else. */
export function nodeOfLease({ metadata: { name } }: Lease): string | undefined {
  return name.startsWith(MEMBER) ? name.slice(MEMBER.length) : undefined;
}

/** Returns how long the heartbeat of a node lasts after a renewal. */
export function heartbeatSeconds(
  leaseDurationSeconds: number,
  { isOwner }: { readonly isOwner: boolean },
): number {
  return leaseDurationSeconds * (isOwner ? 1 : IDLE_FACTOR);
}

/**
 * Returns the nodes whose heartbeats a node watches: the members before it on a ring. Neighbours on the
 * ring have unlike names, because nodes of one rack often fail together.
 *
 * @param width How many, if not the usual number.
 */
export function watchedBy(
  node: string,
  members: Iterable<string>,
  width = WATCHERS,
): readonly string[] {
  const ring = [...members].map((name) => ({ name, hash: hashText(name) }))
    .sort((a, b) => a.hash - b.hash || (a.name < b.name ? -1 : 1)).map(({ name }) => name);
  const own = ring.indexOf(node);
  if (own < 0) return [];
  const count = Math.min(Math.max(width, WATCHERS), ring.length - 1);
  return Array.from({ length: count }, (_, index) => ring.at(own - 1 - index)!);
}

/** A heartbeat, and what is known about its silence. */
interface Heartbeat {
  readonly renewal: string | undefined;
  /** How long the node says that it lasts: the node knows best whether it owns addresses. */
  readonly durationMs: number;
  /** When the last renewal was seen. */
  readonly seenAt: number;
  /** Since when the API server has answered questions about it without a break. */
  readonly answeredSince?: number;
  /** When it was asked last. */
  readonly askedAt?: number;
  /** Whether a question was not answered since the last renewal. */
  readonly wasAway?: boolean;
}

/**
 * Whether a watched node renews its heartbeat. Renewals count from when they were seen by the clock of
 * this node, because clocks of nodes differ. Times are monotonic milliseconds.
 */
export class NodeLiveness {
  readonly #leaseMs: number;
  #heartbeat: Heartbeat;

  constructor(
    { leaseDurationSeconds, now }: {
      readonly leaseDurationSeconds: number;
      readonly now: number;
    },
  ) {
    this.#leaseMs = leaseDurationSeconds * 1000;
    this.#heartbeat = { renewal: undefined, seenAt: now, durationMs: this.#leaseMs };
  }

  /** Takes the heartbeat, or that there is none. Returns whether it was renewed. */
  observe(lease: Lease | undefined, { now }: { readonly now: number }): boolean {
    const { holderIdentity = "", renewTime = "", leaseDurationSeconds } = lease?.spec ?? {};
    const renewal = lease && `${holderIdentity} ${renewTime} ${leaseDurationSeconds}`;
    if (renewal === undefined || renewal === this.#heartbeat.renewal) return false;
    const statedMs = leaseDurationSeconds ? leaseDurationSeconds * 1000 : this.#leaseMs;
    this.#heartbeat = { renewal, seenAt: now, durationMs: Math.min(statedMs, LONGEST_MS) };
    return true;
  }

  /** Takes the answer to a question that was sent at a time. */
  answered(
    lease: Lease | undefined,
    { sentAt, now }: { readonly sentAt: number; readonly now: number },
  ): void {
    if (this.observe(lease, { now })) return;
    const { answeredSince = sentAt } = this.#heartbeat;
    this.#heartbeat = { ...this.#heartbeat, answeredSince, askedAt: sentAt };
  }

  /** Takes that a question was not answered. */
  notAnswered({ now }: { readonly now: number }): void {
    const { renewal, seenAt, durationMs } = this.#heartbeat;
    this.#heartbeat = { renewal, seenAt, durationMs, askedAt: now, wasAway: true };
  }

  /** When the API server has to be asked about the heartbeat, unless it is renewed. */
  get askAt(): number {
    const { askedAt = -Infinity } = this.#heartbeat;
    const goneAt = this.#heartbeat.seenAt + GONE * this.#heartbeat.durationMs;
    const next = askedAt + ASK * this.#heartbeat.durationMs;
    const overdueAt = this.#heartbeat.seenAt + OVERDUE * this.#heartbeat.durationMs;
    return Math.max(overdueAt, askedAt < goneAt ? Math.min(next, goneAt) : next);
  }

  /** Whether the node is gone, by the last answer. */
  isGone(now: number): boolean {
    const { answeredSince = Infinity, wasAway = false } = this.#heartbeat;
    // Other nodes may reach an API server that was away later than this one.
    const needed = Math.max(ANSWERED * this.#heartbeat.durationMs, wasAway ? this.#leaseMs : 0);
    return now >= this.#heartbeat.seenAt + GONE * this.#heartbeat.durationMs &&
      now >= answeredSince + needed;
  }
}
