import { collectionPath } from "../../api/kind.ts";
import { LEASE, type Lease } from "../../api/kinds/lease.ts";
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import { microTime } from "../../kube/event_object.ts";
import { Informer } from "../../kube/informer.ts";
import { named } from "../../kube/informer_set.ts";
import { answeredInTime, LinkedAbort } from "../../kube/linked_abort.ts";
import { Reflector } from "../../kube/reflector.ts";
import type { Logger } from "../../log/logger.ts";
import type { Clock } from "../../os/clock.ts";
import { heartbeatLeaseName, NodeLiveness, watchedBy } from "../../routing/node_liveness.ts";
import { type LeaseClient, leaseOf } from "./lease_holder.ts";

/** Passes on each state of one Lease until the signal is aborted. Never rejects. */
export type LeaseFollower = (
  name: string,
  take: (lease: Lease) => void,
  signal: AbortSignal,
) => Promise<void>;

/** Waits of a watch that fails: shorter than usual, because a node may fail meanwhile. */
const BACKOFF = { initialMs: 200, maxMs: 2_000 };
/** A question is answered within this part of a Lease's duration, or it failed. */
const TIMEOUT_PART = 3;
/** A watched node is looked at this often, because it may have to renew more often by now. */
const LOOK_PART = 0.4;
/** After this time without a node that was gone, as many nodes are watched as usual. */
const CALM_PART = 3;

/** The reason of an end; no request shows it. */
const ENDED = new Error("the node is not watched any more");

/** The dependencies of {@linkcode NodeMonitor}. */
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
  readonly #options: NodeMonitorOptions;
  readonly #signal: AbortSignal;
  readonly #watched = new Map<string, LinkedAbort>();
  readonly #running = new Set<Promise<void>>();
  /** The Leases of the members, as the watch has them. */
  #members: ReadonlyMap<string, Lease> = new Map();
  /** More than usual while one node after the other is found to be gone, as after a power cut. */
  #width = 0;
  #lastGoneAt = -Infinity;

  constructor(
    dependencies: NodeMonitorDependencies,
    options: NodeMonitorOptions,
    signal: AbortSignal,
  ) {
    this.#dependencies = dependencies;
    this.#options = options;
    this.#signal = signal;
  }

  /** The watched nodes. */
  get watched(): readonly string[] {
    return [...this.#watched.keys()];
  }

  /** Takes the members. */
  update(members: ReadonlyMap<string, Lease>): void {
    this.#members = members;
    const now = this.#dependencies.clock.now();
    if (now - this.#lastGoneAt > CALM_PART * this.#leaseMs) this.#width = 0;
    const wanted = new Set(watchedBy(this.#options.nodeName, members.keys(), this.#width));
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
    const now = this.#dependencies.clock.now();
    const { leaseDurationSeconds } = this.#options;
    const liveness = new NodeLiveness({ leaseDurationSeconds, now });
    const end = new LinkedAbort(this.#signal);
    this.#watched.set(node, end);
    const running = this.#watch(node, liveness, end.signal).finally(() => {
      end[Symbol.dispose]();
      this.#running.delete(running);
    });
    this.#running.add(running);
  }

  async #watch(node: string, liveness: NodeLiveness, signal: AbortSignal): Promise<void> {
    const { clock, follow } = this.#dependencies;
    const name = heartbeatLeaseName(node);
    const following = follow(
      name,
      (lease) => void liveness.observe(lease, { now: clock.now() }),
      signal,
    );
    while (!signal.aborted) {
      const wait = liveness.askAt - clock.now();
      if (wait > 0) {
        await clock.sleep(Math.min(wait, LOOK_PART * this.#leaseMs), signal).catch(() => {});
        continue;
      }
      await this.#ask(name, liveness, signal);
      if (!signal.aborted && liveness.isGone(clock.now())) await this.#expel(node);
    }
    await following;
  }

  /** The watch may be late or broken; only the API server itself knows that there is no renewal. */
  async #ask(name: string, liveness: NodeLiveness, signal: AbortSignal): Promise<void> {
    const { clock, client } = this.#dependencies;
    const sentAt = clock.now();
    try {
      const lease = await this.#inTime(
        (limit) => client.get(`${this.#path}/${name}`, limit),
        signal,
      );
      liveness.answered(leaseOf(lease), { sentAt, now: clock.now() });
    } catch (error) {
      const isAbsent = error instanceof ApiError && error.isNotFound();
      if (isAbsent) liveness.answered(undefined, { sentAt, now: clock.now() });
      else liveness.notAnswered({ now: clock.now() });
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

  get #path(): string {
    return collectionPath(LEASE, this.#options.namespace);
  }

  get #leaseMs(): number {
    return this.#options.leaseDurationSeconds * 1000;
  }
}

/** Returns a follower that has a watch for each Lease. */
export function leaseFollower(
  { client, ...dependencies }: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly client: KubeClient;
    readonly random: () => number;
  },
  namespace: string,
): LeaseFollower {
  return (name, take, signal) => {
    const informer = new Informer<Lease>({
      onAdd: take,
      onUpdate: (_, lease) => take(lease),
      onDelete() {},
      onSynced() {},
    });
    const reflector = new Reflector<Lease>({ ...dependencies, client }, {
      subscription: { spec: LEASE, options: { namespace, ...named(name) }, informer },
      slim: leaseOf,
      timing: { backoff: BACKOFF },
    });
    return reflector.run(signal);
  };
}
