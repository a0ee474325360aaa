/**
 * Ends open connections that policies no longer allow: off the path of syncs, one run at a time. The
 * kernel forgets them, so that the rules judge their next packet as that of a new connection.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import { tryParsePort, tryParseProtocol } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import { connectionQuery, type Conntrack, type TrackedConnection } from "../../os/conntrack.ts";
import { type Connection, judgeConnection, viewPlan } from "../../policy/judge_connection.ts";
import type { PodPlan, PolicyPlan, PolicyPlanChanges } from "../../policy/policy_plan.ts";
import { WakeUp, workOnCall } from "../../os/wake_up.ts";

interface ConnectionCutterDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly conntrack: Conntrack;
  readonly metrics: { connectionsCut(family: IpFamily, count: number): void };
}

type ReadPlan = <T>(read: (plan: PolicyPlan) => T) => Promise<T>;

/** Kinds of connections that one run deletes: the tool goes through the whole table for each. */
const MOST_DELETED = 500;

/** Cuts the connections of one IP family. */
export class ConnectionCutter {
  readonly #dependencies: ConnectionCutterDependencies;
  readonly #family: IpFamily;
  readonly #withPlan: ReadPlan;
  readonly #isOwnNode: (address: IpAddress) => boolean;
  #suspects = new Set<IpAddress>();
  readonly #wakeUp = new WakeUp();
  #complaint: string | undefined;

  /**
   * `withPlan` reads the plan once it does not change. `isOwnNode`: whether an address is of this node,
   * whose traffic with its own pods is always allowed.
   */
  constructor(
    dependencies: ConnectionCutterDependencies,
    family: IpFamily,
    withPlan: ReadPlan,
    isOwnNode: (address: IpAddress) => boolean,
  ) {
    this.#dependencies = dependencies;
    this.#family = family;
    this.#withPlan = withPlan;
    this.#isOwnNode = isOwnNode;
  }

  /** A plan was synced: connections of pods that are allowed less than before are looked at soon. */
  synced(plan: PolicyPlan, changes: PolicyPlanChanges): void {
    for (const address of suspectAddresses(plan, changes)) this.#suspects.add(address);
    if (this.#suspects.size > 0) this.#wakeUp.call();
  }

  /** Cuts whenever there may be something to cut, until the signal is aborted. Never rejects. */
  run(signal: AbortSignal): Promise<void> {
    return workOnCall(this.#dependencies.clock, this.#wakeUp, signal, async () => {
      const suspects = this.#suspects;
      this.#suspects = new Set();
      if (suspects.size === 0) return true;
      try {
        await this.#cut(suspects, signal);
        this.#complaint = undefined;
        return true;
      } catch (error) {
        if (signal.aborted) return true;
        this.#giveBack(suspects);
        this.#complain(error);
        return false;
      }
    });
  }

  async #cut(suspects: ReadonlySet<IpAddress>, signal: AbortSignal): Promise<void> {
    const { conntrack, logger, metrics } = this.#dependencies;
    const family = this.#family;
    // By what deletes it: a client may have thousands that differ in its port only.
    const found = new Map<string, TrackedConnection>();
    await conntrack.listConnections(family, {
      addresses: suspects,
      signal,
      onConnection: (connection) => {
        const { original, reply } = connection;
        if (this.#isOwnNode(original.source) || this.#isOwnNode(reply.source)) return;
        found.set(connectionQuery(connection), connection);
      },
    });
    const denied = await this.#withPlan((plan) => {
      const view = viewPlan(plan);
      return [...found].filter(([, each]) => !judgeConnection(view, connectionOf(each)).isAllowed)
        .map(([query]) => query);
    });
    if (denied.length === 0) return;
    const taken = denied.slice(0, MOST_DELETED);
    const deleted = await conntrack.deleteConnections(family, taken, { signal });
    metrics.connectionsCut(family, deleted);
    const more = denied.length - taken.length;
    logger.info("Cut connections that NetworkPolicies do not allow", {
      connections: deleted,
      ...(more > 0 && { remaining: more }),
    });
    if (more > 0) this.#giveBack(suspects);
  }

  #giveBack(suspects: ReadonlySet<IpAddress>): void {
    for (const address of suspects) this.#suspects.add(address);
    this.#wakeUp.call();
  }

  /** Says what does not work once, until it works. */
  #complain(error: unknown): void {
    const text = messageOf(error);
    if (this.#complaint === text) return;
    this.#complaint = text;
    this.#dependencies.logger.warn(
      "Cannot cut connections that NetworkPolicies do not allow; new ones are denied",
      { error },
    );
  }
}

/** Returns the addresses of pods whose rules or sets of peers may allow less than before. */
export function suspectAddresses(
  { pods, lists }: PolicyPlan,
  { full, pods: changed, lists: changedLists, peers, members }: PolicyPlanChanges,
): readonly IpAddress[] {
  const suspectLists = new Set(changedLists);
  for (const [id, { rules }] of lists) {
    const isSuspect = rules.some(({ peers: own = [], action }) =>
      own.some((peer) => {
        const { added = [], removed = [] } = members.get(peer) ?? {};
        // What a rule no longer passes on may be denied by another one.
        return peers.has(peer) || (action !== "deny" && removed.length > 0) ||
          (action !== undefined && added.length > 0);
      })
    );
    if (isSuspect) suspectLists.add(id);
  }
  for (const [id, { next }] of lists) if (next && suspectLists.has(next)) suspectLists.add(id);
  const isSuspect = ({ key, ingress, egress }: PodPlan) =>
    (ingress ?? egress) !== undefined &&
    (full || changed.has(key) || suspectLists.has(ingress!) || suspectLists.has(egress!));
  const isOfMany = full || suspectLists.size > 0;
  const candidates = isOfMany ? pods.values() : changed.values().map((key) => pods.get(key));
  return [...candidates].filter((pod) => pod !== undefined).filter(isSuspect)
    .flatMap(({ addresses }) => addresses);
}

/** As rules see its first packet. */
function connectionOf({ protocol, original, reply }: TrackedConnection): Connection {
  const [name, port] = [
    tryParseProtocol(protocol.toUpperCase()),
    tryParsePort(reply.sourcePort ?? 0),
  ];
  return {
    from: original.source,
    to: reply.source,
    ...(name !== undefined && port !== undefined && { transport: { protocol: name, port } }),
  };
}
