import type { SeenRealServer, SeenServer } from "./proc_ip_vs.ts";
import { mayBeSeconds } from "./proc_ip_vs.ts";
import { setupText } from "./ipvs_operation.ts";
import type { RealServerKey, ServerKey, VirtualServer } from "./virtual_server.ts";

/** A virtual server and its real servers. */
export interface AppliedServer {
  /** Scheduler, flags and persistence, formatted by `setupText()`; `undefined` = not readable. */
  readonly setup: string | undefined;
  /**
   * Weights of the real servers; 0 = no new connections, {@linkcode OTHER_FORWARDING} = another
   * forwarding method than this mode's.
   */
  readonly reals: ReadonlyMap<RealServerKey, number>;
}

/** The weight that stands for another forwarding method. No real server can have it. */
export const OTHER_FORWARDING = -1;

/** The virtual servers that the kernel is known to have. */
export class AppliedServers {
  readonly #servers = new Map<ServerKey, AppliedServer>();

  get size(): number {
    return this.#servers.size;
  }

  /** The keys of all servers. */
  get keys(): Iterable<ServerKey> {
    return this.#servers.keys();
  }

  /** Returns a server; `undefined` = it does not exist. */
  get(key: ServerKey): AppliedServer | undefined {
    return this.#servers.get(key);
  }

  /** Records a server that was written; `undefined` = it was deleted. */
  confirm(key: ServerKey, server: AppliedServer | undefined): void {
    if (server === undefined) this.#servers.delete(key);
    else this.#servers.set(key, server);
  }

  /** Replaces all servers by those that were read. */
  adopt(servers: ReadonlyMap<ServerKey, AppliedServer>): void {
    this.#servers.clear();
    for (const [key, server] of servers) this.#servers.set(key, server);
  }
}

/**
 * Converts a server that was read. The kernel lists neither the flags of a scheduler nor exact
 * seconds. If flags are possible, or if the time cannot be the desired one, the setup is unknown. The
 * next sync then edits the server in place, which affects no connection.
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
  const found = new Map(seen.map((server) => [server.key, server]));
  return [...expected].filter(([key, server]) => {
    const current = found.get(key);
    if (current === undefined || server === undefined) return (current ?? server) !== undefined;
    const { scheduler, persistenceSeconds } = wanted(key) ?? {};
    return current.scheduler !== scheduler ||
      !mayBeSeconds(current.persistenceTicks, persistenceSeconds) ||
      current.reals.length !== server.reals.size ||
      current.reals.some((real) => server.reals.get(real.key) !== weightOf(real));
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
  const mayMatch = seen.scheduler === wanted.scheduler && !seen.isOnePacket &&
    mayBeSeconds(seen.persistenceTicks, wanted.persistenceSeconds);
  if (!mayMatch) return undefined;
  const mayHaveFlags = ["mh", "sh"].includes(seen.scheduler);
  return !mayHaveFlags || known === setup ? setup : undefined;
}
