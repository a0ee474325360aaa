import type { SeenRealServer, SeenServer } from "./proc_ip_vs.ts";
import { mayBeSeconds } from "./proc_ip_vs.ts";
import { setupText } from "./ipvs_operation.ts";
import type { RealServerKey, ServerKey, VirtualServer } from "./virtual_server.ts";

/** A virtual server with its real ones. */
export interface AppliedServer {
  /** The distribution, as by `setupText()`; `undefined` = unreadable. */
  readonly setup: string | undefined;
  /**
   * Weights of the real servers; 0 = no new connections, {@linkcode OTHER_FORWARDING} = another
   * forwarding method than this mode's.
   */
  readonly reals: ReadonlyMap<RealServerKey, number>;
}

/** No weight that a real server may have. */
export const OTHER_FORWARDING = -1;

/** By key. */
export class AppliedServers {
  readonly #servers = new Map<ServerKey, AppliedServer>();

  get size(): number {
    return this.#servers.size;
  }

  /** All keys. */
  get keys(): Iterable<ServerKey> {
    return this.#servers.keys();
  }

  /** Returns what is known of a server; `undefined` = it does not exist. */
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
 * Combines what was read of a server with what is desired. Flags of the scheduler and seconds
 * cannot be read. Where there may be flags, or where the time cannot be the desired one, the setup
 * is unknown; an edit in place, which affects no connection, makes it known.
 */
export function appliedFromSeen(
  seen: SeenServer,
  { wanted, known }: {
    readonly wanted: VirtualServer | undefined;
    /** The setup that was applied last in this process. */
    readonly known: string | undefined;
  },
): AppliedServer {
  const reals = new Map(seen.reals.map((real) => [real.key, weightOf(real)]));
  return { setup: wanted && setupFromSeen(seen, { wanted, known }), reals };
}

/**
 * Returns the servers that differ from the expected ones after a write, in the order in which they
 * were written. Unreadable parts count as expected.
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
