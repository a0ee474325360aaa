import type { Lease } from "../../api/kinds/lease.ts";
import { Backoff } from "../../os/backoff.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import type { AddressAssigner } from "./address_assigner.ts";
import { LeaseHolder } from "./lease_holder.ts";
import type { Layer2Part } from "./layer2_part.ts";
import { NodeMembership } from "./node_membership.ts";

/** Name of the Lease of the process that assigns addresses. */
const ALLOCATOR_LEASE = "kube-relay-allocator";
/** New Services wait so long for an address after the leader was lost. */
const ALLOCATOR_SECONDS = 15;
/** Leases are given up within this time, or they expire. */
const RELEASE_MS = 1_000;
/** Waits of a process that could not assign, in which the other nodes may. */
const REST = { initialMs: 60_000, maxMs: 600_000, resetAfterMs: 3_600_000 };

interface RoutingLeasesDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
  readonly nodeName: string;
}

/** The Leases of this process: those of the node, and that of the only process that assigns addresses. */
export class RoutingLeases {
  readonly allocator: LeaseHolder;
  readonly #dependencies: RoutingLeasesDependencies;
  readonly #assigner: AddressAssigner;
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
    dependencies: RoutingLeasesDependencies,
    { leaseNamespace: namespace, leaseDurationSeconds }: Pick<
      RoutingSettings,
      "leaseNamespace" | "leaseDurationSeconds"
    >,
    assigner: AddressAssigner,
    layer2: Layer2Part | undefined,
  ) {
    const { nodeName, random } = dependencies;
    this.#dependencies = dependencies;
    this.#assigner = assigner;
    this.#layer2 = layer2;
    this.#backoff = new Backoff(random, REST);
    this.#membership = layer2 &&
      new NodeMembership(dependencies, { namespace, nodeName, leaseDurationSeconds }, layer2);
    this.allocator = new LeaseHolder(dependencies, {
      ...{ namespace, name: ALLOCATOR_LEASE, holder: nodeName },
      durationSeconds: ALLOCATOR_SECONDS,
      onHeld: (isHeld) => this.#onLeader(isHeld),
    });
  }

  /** The Lease that shows that this node is alive. Absent if it announces nothing by layer 2. */
  get node(): LeaseHolder | undefined {
    return this.#membership?.heartbeat;
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
    if (lease.metadata.name !== ALLOCATOR_LEASE) this.#membership?.onLease(lease, { isDeleted });
    else this.allocator.observe(isDeleted ? undefined : lease);
  }

  /** Claims and renews until the signal is aborted. */
  async run(client: KubeClient, signal: AbortSignal): Promise<void> {
    this.#client = client;
    await Promise.all([
      this.#membership?.run(client, signal),
      this.allocator.run(client, signal),
    ]);
    this.#term?.abort();
    await this.#leading;
    this.#rest?.cancel();
  }

  /** Gives both up, so that other nodes need not wait. Never rejects. */
  async release(): Promise<void> {
    const client = this.#client;
    this.#term?.abort();
    await this.#leading;
    this.#rest?.cancel();
    if (client) {
      const limit = new AbortController();
      const timer = this.#dependencies.clock.setTimer(RELEASE_MS, () => limit.abort());
      await Promise.all([
        this.#membership?.release(client, limit.signal),
        this.allocator.release(client, limit.signal),
      ]);
      timer.cancel();
    }
    this.#released.resolve();
  }

  #onLeader(isLeader: boolean): void {
    const { logger } = this.#dependencies;
    this.#term?.abort();
    this.#layer2?.setLeader(isLeader);
    if (!isLeader || !this.#client) return;
    logger.info("This process assigns load balancer addresses now");
    const client = this.#client;
    const { signal } = this.#term = new AbortController();
    this.#leading = this.#leading.then(() => this.#assigner.lead(client, signal)).catch((error) =>
      this.#giveUp(error)
    );
  }

  /** A leader that cannot assign keeps no other from it; if there is no other, it tries again. */
  #giveUp(error: unknown): void {
    const { clock, logger } = this.#dependencies;
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
