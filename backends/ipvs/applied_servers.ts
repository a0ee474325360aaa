/**
 * Which virtual servers of ours the kernel holds: as they were applied, or read. Pure but for its own
 * state.
 *
 * @module
 */
import type { SeenRealServer, SeenServer } from "./proc_ip_vs.ts";
import { mayBeSeconds } from "./proc_ip_vs.ts";
import { setupText } from "./ipvs_operation.ts";
import type { RealServerKey, ServerKey, VirtualServer } from "./virtual_server.ts";

/** A virtual server with its real ones. */
export interface AppliedServer {
  /** How it distributes, as `setupText()` has it; `undefined` = that cannot be read. */
  readonly setup: string | undefined;
  /**
   * Weights of the real servers; 0 = it gets no new connections, {@linkcode OTHER_FORWARDING} = packets
   * go there by another way than ours.
   */
  readonly reals: ReadonlyMap<RealServerKey, number>;
}

/** No weight that a real server may have. */
export const OTHER_FORWARDING = -1;

/** By key. */
export class AppliedServers {
  readonly #servers = new Map<ServerKey, AppliedServer>();

  /** How many there are. */
  get size(): number {
    return this.#servers.size;
  }

  /** All keys. */
  get keys(): Iterable<ServerKey> {
    return this.#servers.keys();
  }

  /** What is known of a server; `undefined` = it is not there. */
  get(key: ServerKey): AppliedServer | undefined {
    return this.#servers.get(key);
  }

  /** A server is now so; `undefined` = it is gone. */
  confirm(key: ServerKey, server: AppliedServer | undefined): void {
    if (server === undefined) this.#servers.delete(key);
    else this.#servers.set(key, server);
  }

  /** These, and no others, are there. */
  adopt(servers: ReadonlyMap<ServerKey, AppliedServer>): void {
    this.#servers.clear();
    for (const [key, server] of servers) this.#servers.set(key, server);
  }
}

/**
 * What was read of a server, besides what is wanted of it. Flags of the scheduler cannot be read, nor
 * seconds: where there may be flags, or where the time cannot be the wanted one, the setup is unknown,
 * and an edit in place, which no connection notices, makes it known.
 */
export function appliedFromSeen(
  seen: SeenServer,
  { wanted, known }: {
    readonly wanted: VirtualServer | undefined;
    /** What was applied last, in the lifetime of this process. */
    readonly known: string | undefined;
  },
): AppliedServer {
  const reals = new Map(seen.reals.map((real) => [real.key, weightOf(real)]));
  return { setup: wanted && setupFromSeen(seen, { wanted, known }), reals };
}

/**
 * The servers that are not as they were to be after a write, in the order in which they were written.
 * What cannot be read of them counts as it was to be.
 */
export function unlikeExpected(
  seen: readonly SeenServer[],
  { expected, wanted }: {
    readonly expected: ReadonlyMap<ServerKey, AppliedServer | undefined>;
    readonly wanted: (key: ServerKey) => VirtualServer | undefined;
  },
): readonly ServerKey[] {
  const there = new Map(seen.map((server) => [server.key, server]));
  return [...expected].filter(([key, server]) => {
    const found = there.get(key);
    if (found === undefined || server === undefined) return (found ?? server) !== undefined;
    const { scheduler, persistenceSeconds } = wanted(key) ?? {};
    return found.scheduler !== scheduler ||
      !mayBeSeconds(found.persistenceTicks, persistenceSeconds) ||
      found.reals.length !== server.reals.size ||
      found.reals.some((real) => server.reals.get(real.key) !== weightOf(real));
  }).map(([key]) => key);
}

function weightOf({ forwarding, weight }: SeenRealServer): number {
  return forwarding === "masquerade" ? weight : OTHER_FORWARDING;
}

function setupFromSeen(
  seen: SeenServer,
  { wanted, known }: { readonly wanted: VirtualServer; readonly known: string | undefined },
): string | undefined {
  const setup = setupText(wanted);
  const looksSo = seen.scheduler === wanted.scheduler && !seen.isOnePacket &&
    mayBeSeconds(seen.persistenceTicks, wanted.persistenceSeconds);
  if (!looksSo) return undefined;
  const mayHaveFlags = ["mh", "sh"].includes(seen.scheduler);
  return !mayHaveFlags || known === setup ? setup : undefined;
}
