/**
 * Combines equal events into one object with a count. Pure: callers pass the time.
 *
 * @module
 */
import type { KubeEvent } from "./event.ts";

/** A series without events for this time is closed; the next equal event is a new object. */
export const SERIES_IDLE_MS = 6 * 60_000;
/**
 * The interval at which an ongoing series is sent to the API server, however many events it has.
 */
const SERIES_REFRESH_MS = 30 * 60_000;

/** An event and its number of occurrences. */
export interface EventSeries {
  readonly event: KubeEvent;
  /** The time of the first occurrence; milliseconds since 1970, as all times here. */
  readonly firstAt: number;
  lastAt: number;
  count: number;
  /** The count that the API server has, or is about to get; 0 = none yet. */
  sentCount: number;
  sentAt: number;
  /** Name of the Event object once it exists. */
  objectName?: string;
}

/** All open series. */
export class EventSeriesTable {
  readonly #open = new Map<string, EventSeries>();

  /** Number of open series. */
  get size(): number {
    return this.#open.size;
  }

  /**
   * Adds an event; returns the series if it must be sent now: for the first event, and for the
   * second, which makes it a series. {@linkcode sweep} returns later ones.
   */
  add(event: KubeEvent, now: number): EventSeries | undefined {
    const key = keyOf(event);
    const series = this.#open.get(key);
    if (series === undefined) {
      const fresh = { event, firstAt: now, lastAt: now, count: 1, sentCount: 0, sentAt: now };
      this.#open.set(key, fresh);
      return fresh;
    }
    series.lastAt = now;
    series.count++;
    return series.count === 2 ? series : undefined;
  }

  /**
   * Closes idle series; returns those whose latest count was not sent for too long, including
   * closed ones.
   */
  sweep(now: number): readonly EventSeries[] {
    const due: EventSeries[] = [];
    for (const [key, series] of this.#open) {
      const isIdle = now - series.lastAt >= SERIES_IDLE_MS;
      if (isIdle) this.#open.delete(key);
      const isLate = isIdle || now - series.sentAt >= SERIES_REFRESH_MS;
      if (isLate && series.count > series.sentCount) due.push(series);
    }
    return due;
  }

  /** Forgets a series that could not be sent: the next equal event starts a new one. */
  drop(series: EventSeries): void {
    const key = keyOf(series.event);
    if (this.#open.get(key) === series) this.#open.delete(key);
  }
}

function keyOf({ type, reason, action, note, regarding }: KubeEvent): string {
  const { apiVersion, kind, namespace = "", name, uid = "" } = regarding;
  return [type, reason, action, note, apiVersion, kind, namespace, name, uid].join("\n");
}
