import { collectionPath } from "../../api/kind.ts";
import { LEASE, type Lease } from "../../api/kinds/lease.ts";
import { ApiError } from "../../kube/api_error.ts";
import { microTime } from "../../kube/event_object.ts";
import { answeredInTime, LinkedAbort } from "../../kube/linked_abort.ts";
import type { Logger } from "../../log/logger.ts";
import { hashText } from "../../net/text_hash.ts";
import type { Clock } from "../../os/clock.ts";
import { SortedList } from "../../routing/sorted_list.ts";
import { type LeaseClient, leaseOf } from "./lease_holder.ts";

/** Begins the name of the Lease that a node renews all the time. The name of the node follows. */
export const HEARTBEAT_PREFIX = "kube-relay-heartbeat-";

/** Passes on each state of one Lease until the signal is aborted. Never rejects. */
export type LeaseFollower = (
  name: string,
  take: (lease: Lease) => void,
  signal: AbortSignal,
) => Promise<void>;

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
/** A question is answered within this part of a Lease's duration, or it failed. */
const TIMEOUT_PART = 3;
/** A watched node is looked at this often, because it may have to renew more often by now. */
const LOOK_PART = 0.4;
/** After this time without a node that was gone, as many nodes are watched as usual. */
const CALM_PART = 3;

/** The reason of an end; no request shows it. */
const ENDED = new Error("the node is not watched any more");

/** Returns how long the heartbeat of a node lasts after a renewal. */
export function heartbeatSeconds(leaseDurationSeconds: number, isOwner: boolean): number {
  return leaseDurationSeconds * (isOwner ? 1 : IDLE_FACTOR);
}

interface NodeMonitorDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly client: LeaseClient;
  readonly follow: LeaseFollower;
}

/** The own node, and the Leases of the cluster. */
export interface NodeMonitorOptions {
  readonly nodeName: string;
  readonly namespace: string;
  readonly leaseDurationSeconds: number;
}

/**
 * Watches the heartbeats of two other nodes, whatever the size of the cluster, and clears the
 * membership of a node that is gone, which every node sees. Does nothing unless the API server answers:
 * while it is away, no node is gone.
 */
export class NodeMonitor {
  readonly #dependencies: NodeMonitorDependencies;
  readonly #nodeName: string;
  readonly #path: string;
  readonly #leaseMs: number;
  readonly #signal: AbortSignal;
  readonly #watched = new Map<string, LinkedAbort>();
  readonly #running = new Set<Promise<void>>();
  /** The Leases of the members, as the watch has them. */
  readonly #members = new Map<string, Lease>();
  /** The members. Neighbours have unlike names, because nodes of one rack often fail together. */
  readonly #ring = new SortedList<string>((left, right) =>
    hashText(left) - hashText(right) || (left < right ? -1 : left > right ? 1 : 0)
  );
  /** More than usual while one node after the other is found to be gone, as after a power cut. */
  #width = 0;
  #lastGoneAt = -Infinity;

  constructor(
    dependencies: NodeMonitorDependencies,
    { nodeName, namespace, leaseDurationSeconds }: NodeMonitorOptions,
    signal: AbortSignal,
  ) {
    this.#dependencies = dependencies;
    this.#nodeName = nodeName;
    this.#path = collectionPath(LEASE, namespace);
    this.#leaseMs = leaseDurationSeconds * 1000;
    this.#signal = signal;
  }

  /** The watched nodes. */
  get watched(): readonly string[] {
    return [...this.#watched.keys()];
  }

  /** Takes the Lease of a member, or that a node is none any more. */
  setMember(node: string, lease: Lease | undefined): void {
    if (lease) this.#members.set(node, lease);
    else this.#members.delete(node);
    if (lease) this.#ring.add(node);
    else this.#ring.delete(node);
  }

  /** Watches the members that this node is to watch now, and no others. */
  update(): void {
    const now = this.#dependencies.clock.now();
    if (now - this.#lastGoneAt > CALM_PART * this.#leaseMs) this.#width = 0;
    const wanted = this.#choose();
    for (const [node, end] of this.#watched) {
      if (wanted.has(node)) continue;
      end.abort(ENDED);
      this.#watched.delete(node);
    }
    if (this.#signal.aborted) return;
    for (const node of wanted) if (!this.#watched.has(node)) this.#start(node);
  }

  /** Ends every watch. */
  async stop(): Promise<void> {
    for (const end of this.#watched.values()) end.abort(ENDED);
    this.#watched.clear();
    await Promise.all(this.#running);
  }

  /** The members before this node on the ring. */
  #choose(): ReadonlySet<string> {
    const { items } = this.#ring;
    if (!this.#members.has(this.#nodeName)) return new Set();
    const own = this.#ring.indexOf(this.#nodeName);
    const length = Math.min(Math.max(this.#width, WATCHERS), items.length - 1);
    return new Set(Array.from({ length }, (_, index) => items.at(own - 1 - index)!));
  }

  #start(node: string): void {
    const end = new LinkedAbort(this.#signal);
    this.#watched.set(node, end);
    const running = this.#watch(node, end.signal).finally(() => {
      end[Symbol.dispose]();
      this.#running.delete(running);
    });
    this.#running.add(running);
  }

  async #watch(node: string, signal: AbortSignal): Promise<void> {
    const { clock, follow } = this.#dependencies;
    const name = HEARTBEAT_PREFIX + node;
    const heartbeat = new Heartbeat(this.#leaseMs, clock.now());
    const following = follow(name, (lease) => void heartbeat.observe(lease, clock.now()), signal);
    while (!signal.aborted) {
      const wait = heartbeat.askAt - clock.now();
      if (wait > 0) {
        await clock.sleep(Math.min(wait, LOOK_PART * this.#leaseMs), signal).catch(() => {});
        continue;
      }
      await this.#ask(name, heartbeat, signal);
      if (!signal.aborted && heartbeat.isGone(clock.now())) await this.#expel(node);
    }
    await following;
  }

  /** The watch may be late or broken; only the API server itself knows that there is no renewal. */
  async #ask(name: string, heartbeat: Heartbeat, signal: AbortSignal): Promise<void> {
    const { clock, client } = this.#dependencies;
    const sentAt = clock.now();
    try {
      const lease = await this.#inTime(
        (limit) => client.get(`${this.#path}/${name}`, limit),
        signal,
      );
      heartbeat.answered(leaseOf(lease), sentAt, clock.now());
    } catch (error) {
      const isAbsent = error instanceof ApiError && error.isNotFound();
      if (isAbsent) heartbeat.answered(undefined, sentAt, clock.now());
      else heartbeat.notAnswered(clock.now());
    }
  }

  /** Clears the membership of a node, unless the node or another watcher wrote it meanwhile. */
  async #expel(node: string): Promise<void> {
    const { clock, client, logger } = this.#dependencies;
    const member = this.#members.get(node);
    if (!member) return;
    const { metadata: { name, resourceVersion = "" }, spec } = member;
    const renewTime = microTime(clock.wallNow());
    try {
      await this.#inTime((limit) =>
        client.patch(`${this.#path}/${name}`, {
          metadata: { resourceVersion },
          spec: { ...spec, holderIdentity: "", renewTime },
        }, limit), this.#signal);
      logger.warn("A node does not renew its heartbeat; other nodes answer for its addresses", {
        node,
      });
    } catch (error) {
      // Another watcher was faster, or the question is asked again.
      logger.verbose(1, "Cannot clear the membership of a node that is gone", { node, error });
      return;
    }
    this.#lastGoneAt = clock.now();
    this.#width = 2 * Math.max(this.#width, this.#watched.size);
  }

  #inTime<T>(send: (limit: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    const { clock } = this.#dependencies;
    return answeredInTime({ clock, ms: this.#leaseMs / TIMEOUT_PART, signal }, send);
  }
}

/**
 * What is known about the heartbeat of a node. Renewals count from when they were seen by the clock of
 * this node, because clocks of nodes differ. Times are monotonic milliseconds.
 */
class Heartbeat {
  readonly #leaseMs: number;
  #renewal: string | undefined;
  /** How long the node says that it lasts: the node knows best whether it owns addresses. */
  #durationMs: number;
  /** When the last renewal was seen. */
  #seenAt: number;
  /** Since when the API server has answered questions about it without a break. */
  #answeredSince = Infinity;
  /** When it was asked last. */
  #askedAt = -Infinity;
  /** Whether a question was not answered since the last renewal. */
  #wasAway = false;

  constructor(leaseMs: number, now: number) {
    this.#leaseMs = leaseMs;
    this.#durationMs = leaseMs;
    this.#seenAt = now;
  }

  /** Takes the Lease, or that there is none. Returns whether it was renewed. */
  observe(lease: Lease | undefined, now: number): boolean {
    const { holderIdentity = "", renewTime = "", leaseDurationSeconds } = lease?.spec ?? {};
    const renewal = lease && `${holderIdentity} ${renewTime} ${leaseDurationSeconds}`;
    if (renewal === undefined || renewal === this.#renewal) return false;
    this.#renewal = renewal;
    this.#seenAt = now;
    const statedMs = leaseDurationSeconds ? leaseDurationSeconds * 1000 : this.#leaseMs;
    this.#durationMs = Math.min(statedMs, LONGEST_MS);
    [this.#answeredSince, this.#askedAt, this.#wasAway] = [Infinity, -Infinity, false];
    return true;
  }

  /** Takes the answer to a question that was sent at a time. */
  answered(lease: Lease | undefined, sentAt: number, now: number): void {
    if (this.observe(lease, now)) return;
    this.#answeredSince = Math.min(this.#answeredSince, sentAt);
    this.#askedAt = sentAt;
  }

  /** Takes that a question was not answered. */
  notAnswered(now: number): void {
    [this.#answeredSince, this.#askedAt, this.#wasAway] = [Infinity, now, true];
  }

  /** When the API server has to be asked about the heartbeat, unless it is renewed. */
  get askAt(): number {
    const goneAt = this.#seenAt + GONE * this.#durationMs;
    const next = this.#askedAt + ASK * this.#durationMs;
    const overdueAt = this.#seenAt + OVERDUE * this.#durationMs;
    return Math.max(overdueAt, this.#askedAt < goneAt ? Math.min(next, goneAt) : next);
  }

  /** Whether the node is gone, by the last answer. */
  isGone(now: number): boolean {
    // Other nodes may reach an API server that was away later than this one.
    const needed = Math.max(ANSWERED * this.#durationMs, this.#wasAway ? this.#leaseMs : 0);
    return now >= this.#seenAt + GONE * this.#durationMs && now >= this.#answeredSince + needed;
  }
}
