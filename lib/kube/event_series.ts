/**
 * Equal events folded into one object with a count. Pure: time is handed in.
 *
 * @module
 */
import type { KubeEvent } from "./event.ts";

/** A series that is silent for so long is closed; the next equal event is a new object. */
export const SERIES_IDLE_MS = 6 * 60_000;
/** A series that goes on is told to the API server this often, however many events come. */
export const SERIES_REFRESH_MS = 30 * 60_000;

/** An event and how often it was seen. */
export interface EventSeries {
  readonly event: KubeEvent;
  /** When it was first seen; milliseconds since 1970, as all times here. */
  readonly firstAt: number;
  lastAt: number;
  count: number;
  /** The count that the API server was last told, or is about to be; 0 = nothing yet. */
  toldCount: number;
  toldAt: number;
  /** Name of the Event object once it was made. */
  objectName?: string;
}

/** All series that are open. */
export class EventSeriesTable {
  readonly #open = new Map<string, EventSeries>();

  /** How many are open. */
  get size(): number {
    return this.#open.size;
  }

  /**
   * Takes an event; returns the series if the API server has to be told now: of the first event and
   * of the second, which makes a series of it. Further ones are left to {@linkcode sweep}.
   */
  add(event: KubeEvent, now: number): EventSeries | undefined {
    const key = keyOf(event);
    const series = this.#open.get(key);
    if (series === undefined) {
      const fresh = { event, firstAt: now, lastAt: now, count: 1, toldCount: 0, toldAt: now };
      this.#open.set(key, fresh);
      return fresh;
    }
    series.lastAt = now;
    series.count++;
    return series.count === 2 ? series : undefined;
  }

  /** Closes what is idle; returns what the API server has not heard of for too long, closed ones too. */
  sweep(now: number): readonly EventSeries[] {
    const due: EventSeries[] = [];
    for (const [key, series] of this.#open) {
      const isIdle = now - series.lastAt >= SERIES_IDLE_MS;
      if (isIdle) this.#open.delete(key);
      const isLate = isIdle || now - series.toldAt >= SERIES_REFRESH_MS;
      if (isLate && series.count > series.toldCount) due.push(series);
    }
    return due;
  }

  /** Forgets a series that could not be told: the next equal event begins anew. */
  drop(series: EventSeries): void {
    const key = keyOf(series.event);
    if (this.#open.get(key) === series) this.#open.delete(key);
  }
}

function keyOf({ type, reason, action, note, regarding }: KubeEvent): string {
  const { apiVersion, kind, namespace = "", name, uid = "" } = regarding;
  return [type, reason, action, note, apiVersion, kind, namespace, name, uid].join("\n");
}
