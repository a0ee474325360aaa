import type { Clock } from "../../lib/os/clock.ts";
import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import { ExpiryQueue } from "./expiry_queue.ts";
import type { RecencyItem } from "./recency_list.ts";

/** The time-outs of {@linkcode EdgeSettings}. */
type TimeoutSettings = Pick<EdgeSettings, "idleMs" | "lifetimeMs">;

interface TimedItem<T> extends RecencyItem<TimedItem<T>> {
  readonly target: T;
}

interface TimedQueue<T> {
  readonly queue: ExpiryQueue<TimedItem<T>>;
  readonly items: Map<T, TimedItem<T>>;
}

/** Ends sessions or flows of one ServicePort after an idle time, and after a lifetime. */
export class SessionTimeouts<T> {
  readonly #idle: TimedQueue<T> | undefined;
  readonly #lifetime: TimedQueue<T> | undefined;

  constructor(
    clock: Clock,
    { idleMs, lifetimeMs }: TimeoutSettings,
    /** Called once for each target whose time is up. */
    onExpired: (target: T) => void,
  ) {
    const create = (ttlMs: number | undefined) =>
      ttlMs === undefined ? undefined : queueOf<T>(clock, {
        ttlMs,
        onExpired: (target) => {
          this.leave(target);
          onExpired(target);
        },
      });
    this.#idle = create(idleMs);
    this.#lifetime = create(lifetimeMs);
  }

  /** Both times of a target begin now. */
  enter(target: T, now: number): void {
    for (const timed of [this.#idle, this.#lifetime]) {
      if (timed === undefined || timed.items.has(target)) continue;
      const item = { target, older: undefined, newer: undefined, usedAt: now };
      timed.items.set(target, item);
      timed.queue.add(item, now);
    }
  }

  /** Data came: the idle time begins again. */
  touch(target: T, now: number): void {
    const item = this.#idle?.items.get(target);
    if (item) this.#idle?.queue.touch(item, now);
  }

  leave(target: T): void {
    for (const timed of [this.#idle, this.#lifetime]) {
      const item = timed?.items.get(target);
      if (!timed || !item) continue;
      timed.queue.delete(item);
      timed.items.delete(target);
      // No timer stays behind for a ServicePort without connections: it may be removed.
      if (timed.items.size === 0) timed.queue.close();
    }
  }

  /** Stops the timers. */
  close(): void {
    this.#idle?.queue.close();
    this.#lifetime?.queue.close();
  }
}

function queueOf<T>(
  clock: Clock,
  { ttlMs, onExpired }: { readonly ttlMs: number; readonly onExpired: (target: T) => void },
): TimedQueue<T> {
  const items = new Map<T, TimedItem<T>>();
  const queue = new ExpiryQueue<TimedItem<T>>(clock, {
    ttlMs,
    onExpired: (item) => {
      items.delete(item.target);
      onExpired(item.target);
    },
  });
  return { queue, items };
}
