import { collectionPath } from "../../api/kind.ts";
import { LAYER2_ANNOTATION, LEASE, type Lease } from "../../api/kinds/lease.ts";
import type { AddressAssigner } from "./address_assigner.ts";
import type { ControllerParts } from "../controllers.ts";
import type { Layer2Part } from "./layer2_part.ts";
import { type LeaseClient, LeaseHolder, leaseOf } from "./lease_holder.ts";
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import { microTime } from "../../kube/event.ts";
import { changeHandler, Informer } from "../../kube/informer.ts";
import { named } from "../../kube/informer_set.ts";
import { answeredInTime, LinkedAbort } from "../../kube/linked_abort.ts";
import { Reflector } from "../../kube/reflector.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { hashText } from "../../net/text_hash.ts";
import { Backoff } from "../../os/backoff.ts";
import type { Timer } from "../../os/clock.ts";
import { parseMemberReport } from "../../routing/layer2_member.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import { SortedList } from "../../net/sorted_list.ts";

/** Name of the Lease of the process that assigns addresses. */
const ALLOCATOR_LEASE = "kube-relay-allocator";
/** New Services wait so long for an address after the leader was lost. */
const ALLOCATOR_SECONDS = 15;
/** Leases are given up within this time, or they expire. */
const RELEASE_MS = 1_000;
/** Waits of a process that could not assign, in which the other nodes may. */
const REST = { initialMs: 60_000, maxMs: 600_000, resetAfterMs: 3_600_000 };

/** What the Leases of a process need of its run. */
type LeaseEdges = Pick<ControllerParts, "clock" | "logger" | "random" | "nodeName">;

/** The Leases of this process: those of the node, and that of the only process that assigns addresses. */
export class RoutingLeases {
  readonly allocator: LeaseHolder;
  readonly #edges: LeaseEdges;
  readonly #assigner: Pick<AddressAssigner, "lead">;
  readonly #layer2: Layer2Part | undefined;
  readonly #membership: NodeMembership | undefined;
  readonly #released = Promise.withResolvers<void>();
  #client: KubeClient | undefined;
  /** Ends the work of the leader. */
  #term: AbortController | undefined;
  #leading: Promise<void> = Promise.resolve();
  readonly #backoff: Backoff;
  /** Runs while this process is no candidate, because it could not assign addresses. */
  #rest: Timer | undefined;
  #failure: string | undefined;

  /** `layer2` is absent if no address is announced by layer 2: nodes then need no Lease. */
  constructor(
    edges: LeaseEdges,
    settings: LeaseSettings,
    assigner: Pick<AddressAssigner, "lead">,
    layer2: Layer2Part | undefined,
  ) {
    this.#edges = edges;
    this.#assigner = assigner;
    this.#layer2 = layer2;
    this.#backoff = new Backoff(edges.random, REST);
    this.#membership = layer2 && new NodeMembership(edges, settings, layer2);
    this.allocator = new LeaseHolder(edges, {
      ...{ namespace: settings.leaseNamespace, name: ALLOCATOR_LEASE, holder: edges.nodeName },
      durationSeconds: ALLOCATOR_SECONDS,
      onHeld: (isHeld) => this.#onLeader(isHeld),
    });
  }

  /** The Lease that shows that this node is alive. Absent if it announces nothing by layer 2. */
  get node(): LeaseHolder | undefined {
    const heartbeat = this.#membership?.heartbeat;
    return heartbeat?.isWanted ? heartbeat : undefined;
  }

  /** Why this process does not assign addresses now; `undefined` if it may. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** Resolves when the client is no longer needed. */
  get released(): Promise<void> {
    return this.#released.promise;
  }

  /** Takes a Lease as the watch has it. */
  onLease(lease: Lease, { isDeleted }: { readonly isDeleted: boolean }): void {
    const { name } = lease.metadata;
    if (name === ALLOCATOR_LEASE) this.allocator.observe(isDeleted ? undefined : lease);
    else if (name.startsWith(MEMBER_PREFIX)) {
      this.#membership?.onMember(name.slice(MEMBER_PREFIX.length), isDeleted ? undefined : lease);
    }
  }

  /** Claims and renews until the signal is aborted. */
  async run(client: KubeClient, signal: AbortSignal): Promise<void> {
    this.#client = client;
    await Promise.all([
      this.#membership?.run(client, signal),
      this.allocator.run(client, signal),
    ]);
    await this.#resign();
  }

  /** Gives both up, so that other nodes need not wait. Never rejects. */
  async release(): Promise<void> {
    const client = this.#client;
    await this.#resign();
    if (client) {
      const limit = new AbortController();
      const timer = this.#edges.clock.setTimer(RELEASE_MS, () => limit.abort());
      await Promise.all([
        this.#membership?.member.release(client, limit.signal),
        this.allocator.release(client, limit.signal),
      ]);
      timer.cancel();
    }
    this.#released.resolve();
  }

  async #resign(): Promise<void> {
    this.#term?.abort();
    await this.#leading;
    this.#rest?.cancel();
  }

  #onLeader(isLeader: boolean): void {
    this.#term?.abort();
    this.#layer2?.setLeader(isLeader);
    const client = this.#client;
    if (!isLeader || !client) return;
    this.#edges.logger.info("This process assigns load balancer addresses now");
    const { signal } = this.#term = new AbortController();
    this.#leading = this.#leading.then(() => this.#assigner.lead(client, signal)).catch((error) =>
      this.#giveUp(error)
    );
  }

  /** A leader that cannot assign keeps no other from it; if there is no other, it tries again. */
  #giveUp(error: unknown): void {
    const { clock, logger } = this.#edges;
    const waitMs = this.#backoff.next(clock.now());
    logger.error("Cannot assign addresses; giving up the Lease, so that another node can", {
      ...{ error, waitMs },
    });
    this.#failure = `this node cannot assign addresses: ${messageOf(error)}`;
    this.allocator.isWanted = false;
    this.#rest?.cancel();
    this.#rest = clock.setTimer(waitMs, () => {
      this.#failure = undefined;
      this.allocator.isWanted = true;
    });
  }
}

/** Begins the name of the Lease that shows that a node takes part. It changes only when that does. */
const MEMBER_PREFIX = "kube-relay-member-";
/** Marks the Leases of which a kube-relay watches only a few. */
const HEARTBEAT_LABEL = "kube-relay.io/heartbeat";

/** A membership says nothing about time: it is renewed only so that its Lease is no old one. */
const MEMBER_SECONDS = 86_400;
/** Time between two searches for another machine that answers for an own address. */
const CONFLICT_MS = 1_000;
/** A request that takes longer than this part of the Lease's duration may never be answered. */
const CUT_OFF_PART = 1 / 6;
/** Waits of a watch that fails: shorter than usual, because a node may fail meanwhile. */
const BACKOFF = { initialMs: 200, maxMs: 2_000 };

/**
 * The part of this node in layer 2: a Lease that shows every node that it takes part, a heartbeat that
 * two other nodes watch, and the watches of two other nodes.
 */
class NodeMembership {
  /** Renewed all the time, if it is wanted. */
  readonly heartbeat: LeaseHolder;
  readonly member: LeaseHolder;
  readonly #edges: LeaseEdges;
  readonly #settings: LeaseSettings;
  readonly #layer2: Layer2Part;
  readonly #members = new Map<string, Lease>();
  #monitor: NodeMonitor | undefined;
  /** The last time without the API server; `undefined` = none, or it was long ago. */
  #cutOff: { readonly since: number; until: number } | undefined;

  constructor(edges: LeaseEdges, settings: LeaseSettings, layer2: Layer2Part) {
    const { leaseNamespace: namespace, leaseDurationSeconds } = settings;
    const { nodeName: holder } = edges;
    this.#edges = edges;
    this.#settings = settings;
    this.#layer2 = layer2;
    const own = { namespace, holder, isOwn: true };
    const heartbeat = this.heartbeat = new LeaseHolder(edges, {
      ...{ ...own, name: HEARTBEAT_PREFIX + holder, label: HEARTBEAT_LABEL },
      durationSeconds: heartbeatSeconds(leaseDurationSeconds, false),
      onHeld: () => this.member.reconsider(),
    });
    this.member = new LeaseHolder(edges, {
      ...{ ...own, name: MEMBER_PREFIX + holder, durationSeconds: MEMBER_SECONDS },
      mayClaim: () => heartbeat.isHeld && layer2.report !== undefined,
      annotations: () => ({ [LAYER2_ANNOTATION]: layer2.report ?? "" }),
    });
    this.#update();
    layer2.follow(() => this.#update());
  }

  /** Takes the member Lease of a node as the watch has it; `undefined` = it was deleted. */
  onMember(node: string, lease: Lease | undefined): void {
    if (node === this.#edges.nodeName) this.member.observe(lease);
    if (lease?.spec.holderIdentity) {
      this.#members.set(node, lease);
      const report = parseMemberReport(lease.metadata.annotations?.[LAYER2_ANNOTATION]);
      this.#layer2.setMember(node, { report });
    } else {
      this.#members.delete(node);
      this.#layer2.setMember(node, undefined);
    }
    this.#monitor?.setMember(node, this.#members.get(node));
    this.#update();
  }

  /** Takes part until the signal is aborted. Never rejects. */
  async run(client: KubeClient, signal: AbortSignal): Promise<void> {
    // The failures of its watches are those of the connection, which the other watches report.
    const edges = { ...this.#edges, client, logger: SILENT_LOGGER };
    const { leaseNamespace: namespace } = this.#settings;
    const follow: LeaseFollower = (name, take, signal) =>
      new Reflector<Lease>(edges, {
        subscription: {
          spec: LEASE,
          options: { namespace, ...named(name) },
          informer: new Informer<Lease>(changeHandler((_, lease) => lease && take(lease))),
        },
        slim: leaseOf,
        timing: { backoff: BACKOFF },
      }).run(signal);
    this.#monitor = new NodeMonitor({ ...this.#edges, client, follow }, this.#settings, signal);
    for (const [node, lease] of this.#members) this.#monitor.setMember(node, lease);
    this.#update();
    await Promise.all([
      this.heartbeat.run(client, signal),
      this.member.run(client, signal),
      this.#watchConflicts(signal),
    ]);
    await this.#monitor.stop();
  }

  #update(): void {
    const layer2 = this.#layer2;
    this.heartbeat.isWanted = this.member.isWanted = layer2.mayAnnounce;
    const isOwner = layer2.isOwner(this.#edges.nodeName);
    this.heartbeat.setDuration(heartbeatSeconds(this.#settings.leaseDurationSeconds, isOwner));
    this.member.reconsider();
    this.#monitor?.update();
  }

  /**
   * While this node cannot renew its heartbeat, others may take its addresses over. The watch that shows
   * it may be later than the first renewal that succeeds.
   */
  async #watchConflicts(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#edges;
    const leaseMs = this.#settings.leaseDurationSeconds * 1000;
    while (!signal.aborted) {
      const now = clock.now();
      if (this.heartbeat.failingMs > leaseMs * CUT_OFF_PART) {
        this.#cutOff = { since: this.#cutOff?.since ?? now, until: now };
      } else if (this.#cutOff && now - this.#cutOff.until > leaseMs) {
        this.#cutOff = undefined;
        this.#layer2.takeBack();
      }
      if (this.#cutOff) {
        await this.#layer2.yieldConflicts(this.#cutOff.since).catch((error) => {
          logger.verbose(1, "Cannot ask who answers for addresses", { error });
        });
      }
      const restMs = Math.max(0, now + CONFLICT_MS - clock.now());
      await clock.sleep(restMs, signal).catch(() => {});
    }
  }
}

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

/** What a monitor needs of its run. */
type MonitorEdges = Pick<ControllerParts, "clock" | "logger" | "nodeName"> & {
  readonly client: LeaseClient;
  readonly follow: LeaseFollower;
};

type LeaseSettings = Pick<RoutingSettings, "leaseNamespace" | "leaseDurationSeconds">;

/**
 * Watches the heartbeats of two other nodes, whatever the size of the cluster, and clears the
 * membership of a node that is gone, which every node sees. Does nothing unless the API server answers:
 * while it is away, no node is gone.
 */
export class NodeMonitor {
  readonly #edges: MonitorEdges;
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
    edges: MonitorEdges,
    { leaseNamespace, leaseDurationSeconds }: LeaseSettings,
    signal: AbortSignal,
  ) {
    this.#edges = edges;
    this.#path = collectionPath(LEASE, leaseNamespace);
    this.#leaseMs = leaseDurationSeconds * 1000;
    this.#signal = signal;
  }

  /** The watched nodes. */
  get watched(): readonly string[] {
    return [...this.#watched.keys()];
  }

  /** Takes the Lease of a member, or that a node is none any more. */
  setMember(node: string, lease: Lease | undefined): void {
    if (lease) {
      this.#members.set(node, lease);
      this.#ring.add(node);
    } else {
      this.#members.delete(node);
      this.#ring.delete(node);
    }
  }

  /** Watches the members that this node is to watch now, and no others. */
  update(): void {
    const now = this.#edges.clock.now();
    if (now - this.#lastGoneAt > CALM_PART * this.#leaseMs) this.#width = 0;
    // The members before this node on the ring.
    const { items } = this.#ring;
    const own = this.#ring.indexOf(this.#edges.nodeName);
    const isMember = this.#members.has(this.#edges.nodeName);
    const length = Math.min(Math.max(this.#width, WATCHERS), items.length - 1);
    const wanted = new Set(
      Array.from({ length: isMember ? length : 0 }, (_, index) => items.at(own - 1 - index)!),
    );
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
    const { clock, follow } = this.#edges;
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
    const { clock, client } = this.#edges;
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
    const { clock, client, logger } = this.#edges;
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
    const { clock } = this.#edges;
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
