import { LAYER2_ANNOTATION, LEASE, type Lease } from "../../api/kinds/lease.ts";
import type { KubeClient } from "../../kube/client.ts";
import { changeHandler, Informer } from "../../kube/informer.ts";
import { named } from "../../kube/informer_set.ts";
import { Reflector } from "../../kube/reflector.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import type { Logger } from "../../log/logger.ts";
import type { Clock } from "../../os/clock.ts";
import { type MemberReport, parseMemberReport } from "../../routing/layer2_member.ts";
import type { Layer2Part } from "./layer2_part.ts";
import { type LeaseClient, LeaseHolder, leaseOf } from "./lease_holder.ts";
import {
  HEARTBEAT_PREFIX,
  heartbeatSeconds,
  type LeaseFollower,
  NodeMonitor,
  type NodeMonitorOptions,
} from "./node_monitor.ts";

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

interface NodeMembershipDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
}

/**
 * The part of this node in layer 2: a Lease that shows every node that it takes part, a heartbeat that
 * two other nodes watch, and the watches of two other nodes.
 */
export class NodeMembership {
  readonly #dependencies: NodeMembershipDependencies;
  readonly #options: NodeMonitorOptions;
  readonly #layer2: Layer2Part;
  readonly #heartbeat: LeaseHolder;
  readonly #member: LeaseHolder;
  readonly #members = new Map<string, Lease>();
  #monitor: NodeMonitor | undefined;
  /** The last time without the API server; `undefined` = none, or it was long ago. */
  #cutOff: { readonly since: number; until: number } | undefined;

  constructor(
    dependencies: NodeMembershipDependencies,
    options: NodeMonitorOptions,
    layer2: Layer2Part,
  ) {
    const { nodeName: holder, namespace, leaseDurationSeconds } = options;
    this.#dependencies = dependencies;
    this.#options = options;
    this.#layer2 = layer2;
    const heartbeat = this.#heartbeat = new LeaseHolder(dependencies, {
      ...{ namespace, holder, name: HEARTBEAT_PREFIX + holder, label: HEARTBEAT_LABEL },
      isOwn: true,
      durationSeconds: heartbeatSeconds(leaseDurationSeconds, false),
      onHeld: () => this.#member.reconsider(),
    });
    this.#member = new LeaseHolder(dependencies, {
      ...{ namespace, holder, name: MEMBER_PREFIX + holder, durationSeconds: MEMBER_SECONDS },
      isOwn: true,
      mayClaim: () => heartbeat.isHeld && layer2.report !== undefined,
      annotations: (renewTime) => ({
        [LAYER2_ANNOTATION]: `${renewTime} ${layer2.report ?? ""}`,
      }),
    });
    this.#update();
    layer2.follow(() => this.#update());
  }

  /** The Lease that is renewed all the time; `undefined` if this node announces nothing. */
  get heartbeat(): LeaseHolder | undefined {
    return this.#heartbeat.isWanted ? this.#heartbeat : undefined;
  }

  /** Takes a Lease as the watch has it. */
  onLease(lease: Lease, { isDeleted }: { readonly isDeleted: boolean }): void {
    const { name } = lease.metadata;
    if (!name.startsWith(MEMBER_PREFIX)) return;
    const node = name.slice(MEMBER_PREFIX.length);
    if (node === this.#options.nodeName) this.#member.observe(isDeleted ? undefined : lease);
    const isMember = !isDeleted && (lease.spec.holderIdentity ?? "") !== "";
    if (isMember) this.#members.set(node, lease);
    else this.#members.delete(node);
    this.#layer2.setMember(
      node,
      isMember ? { report: reportOf(lease) } : undefined,
    );
    this.#monitor?.setMember(node, this.#members.get(node));
    this.#update();
  }

  /** Takes part until the signal is aborted. Never rejects. */
  async run(client: KubeClient, signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#dependencies;
    const follow = this.#follower(client);
    this.#monitor = new NodeMonitor({ clock, logger, client, follow }, this.#options, signal);
    for (const [node, lease] of this.#members) this.#monitor.setMember(node, lease);
    this.#update();
    await Promise.all([
      this.#heartbeat.run(client, signal),
      this.#member.run(client, signal),
      this.#watchConflicts(signal),
    ]);
    await this.#monitor.stop();
  }

  /** Shows other nodes that this one takes part no longer. Never rejects. */
  release(client: LeaseClient, signal: AbortSignal): Promise<void> {
    return this.#member.release(client, signal);
  }

  /** Has a watch for each Lease. */
  #follower(client: KubeClient): LeaseFollower {
    // Its failures are those of the connection, which the other watches report.
    const edges = { ...this.#dependencies, client, logger: SILENT_LOGGER };
    const { namespace } = this.#options;
    return (name, take, signal) => {
      const informer = new Informer<Lease>(changeHandler((_, lease) => lease && take(lease)));
      const reflector = new Reflector<Lease>(edges, {
        subscription: { spec: LEASE, options: { namespace, ...named(name) }, informer },
        slim: leaseOf,
        timing: { backoff: BACKOFF },
      });
      return reflector.run(signal);
    };
  }

  #update(): void {
    const layer2 = this.#layer2;
    const { nodeName, leaseDurationSeconds } = this.#options;
    this.#heartbeat.isWanted = this.#member.isWanted = layer2.mayAnnounce;
    // A release without reports expects the renewals of an owner from any node that it takes for one.
    const isOwner = layer2.isOwner(nodeName) || layer2.hasSilentMembers;
    this.#heartbeat.setDuration(heartbeatSeconds(leaseDurationSeconds, isOwner));
    this.#member.reconsider();
    this.#monitor?.update();
  }

  /**
   * While this node cannot renew its heartbeat, others may take its addresses over. The watch that shows
   * it may be later than the first renewal that succeeds.
   */
  async #watchConflicts(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#dependencies;
    const leaseMs = this.#options.leaseDurationSeconds * 1000;
    while (!signal.aborted) {
      const now = clock.now();
      if (this.#heartbeat.failingMs > leaseMs * CUT_OFF_PART) {
        this.#cutOff ??= { since: now, until: now };
        this.#cutOff.until = now;
      }
      if (this.#cutOff && now - this.#cutOff.until > leaseMs) {
        this.#cutOff = undefined;
        this.#layer2.takeBack();
      }
      if (this.#cutOff) {
        await this.#layer2.yieldConflicts(this.#cutOff).catch((error) => {
          logger.verbose(1, "Cannot ask who answers for addresses", { error });
        });
      }
      const restMs = Math.max(0, now + CONFLICT_MS - clock.now());
      await clock.sleep(restMs, signal).catch(() => {});
    }
  }
}

/**
 * Reads the report of a member Lease. A release without reports renews the Lease but leaves the annotation
 * of a later one as it was, so only that of the last renewal counts.
 */
function reportOf({ metadata, spec: { renewTime = "" } }: Lease): MemberReport | undefined {
  const text = metadata.annotations?.[LAYER2_ANNOTATION] ?? "";
  const space = text.indexOf(" ");
  const isCurrent = Date.parse(text.slice(0, Math.max(0, space))) === Date.parse(renewTime);
  return isCurrent ? parseMemberReport(text.slice(space + 1)) : undefined;
}
