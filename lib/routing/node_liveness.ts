import type { Lease } from "../api/kinds/lease.ts";

/** A Lease of a node, as it was last seen. */
interface SeenLease {
  readonly renewTime: string | undefined;
  readonly holder: string;
  readonly durationMs: number;
  /** When its last renewal was seen. */
  readonly seenAt: number;
}

/** The Leases of nodes have this in front of the name of the node. */
const PREFIX = "kube-relay-node-";
/** Bounds of what another node may claim. Seconds. */
const [SHORTEST, LONGEST] = [1, 60];
/** Milliseconds of a second: the rest is for the syncs by which another node takes over in time. */
const COUNTED_MS = 900;

/** Returns the name of the Lease of a node. */
export function nodeLeaseName(node: string): string {
  return `${PREFIX}${node}`;
}

/** Returns the node of a Lease; `undefined` for the Lease of something else. */
export function nodeOfLease({ metadata: { name } }: Lease): string | undefined {
  return name.startsWith(PREFIX) ? name.slice(PREFIX.length) : undefined;
}

/**
 * Which nodes run kube-relay, by their Leases. A Lease expires when no renewal was seen for its
 * duration by the clock of this node: the times in Leases are of other clocks, which may differ.
 * The last tenth of the duration is left to the node that takes over.
 */
export class NodeLiveness {
  readonly #leases = new Map<string, SeenLease>();

  /** Takes the Lease of a node, or that it is gone. `now` is monotonic milliseconds. */
  observe(node: string, lease: Lease | undefined, { now }: { readonly now: number }): void {
    if (!lease) {
      this.#leases.delete(node);
      return;
    }
    const { holderIdentity: holder = "", leaseDurationSeconds = 0, renewTime } = lease.spec;
    const known = this.#leases.get(node);
    const isRenewed = known?.renewTime !== renewTime || known?.holder !== holder;
    const seconds = Math.min(LONGEST, Math.max(SHORTEST, leaseDurationSeconds));
    this.#leases.set(node, {
      renewTime,
      holder,
      durationMs: seconds * COUNTED_MS,
      seenAt: isRenewed ? now : known.seenAt,
    });
  }

  /**
   * After a time without the API server, renewals were missed: each Lease counts as renewed now, and
   * expires if no renewal follows.
   */
  restart(now: number): void {
    for (const [node, lease] of this.#leases) this.#leases.set(node, { ...lease, seenAt: now });
  }

  /** The nodes whose Lease is held and has not expired. */
  live(now: number): ReadonlySet<string> {
    const live = new Set<string>();
    for (const [node, { holder, durationMs, seenAt }] of this.#leases) {
      if (holder !== "" && now < seenAt + durationMs) live.add(node);
    }
    return live;
  }

  /** When the next Lease expires; `undefined` if none can. */
  nextExpiry(now: number): number | undefined {
    let next: number | undefined;
    for (const { holder, durationMs, seenAt } of this.#leases.values()) {
      const at = seenAt + durationMs;
      if (holder !== "" && at > now && (next === undefined || at < next)) next = at;
    }
    return next;
  }
}
