/**
 * Posts events to the API server, in the background and with bounded memory. Equal events are one object
 * with a count.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { printableText } from "../log/printable_text.ts";
import type { Clock, Timer } from "../os/clock.ts";
import { ApiError } from "./api_error.ts";
import type { KubeClient } from "./client.ts";
import { type EventSink, type KubeEvent, microTime } from "./event.ts";
import { TransportError } from "./transport.ts";
import { KubeAuthError } from "./kube_auth.ts";

/** Limits of the API server's validation, in bytes. */
const LONGEST_NOTE = 1024;
const LONGEST_INSTANCE = 128;

/** Longest queue; more events are dropped, as upstream. */
const LONGEST_QUEUE = 1000;
const MOST_ATTEMPTS = 12;
const RETRY_MS = 10_000;
/** At exit, queued events are still sent if the API server accepts them within this time. */
const LAST_WORDS_MS = 2000;
/** Random part of the wait, so that the nodes of a cluster do not all return at once. */
const RETRY_JITTER = 0.25;

/** A series without events for this time is closed; the next equal event is a new object. */
const SERIES_IDLE_MS = 6 * 60_000;
/**
 * The interval at which an ongoing series is sent to the API server, however many events it has.
 */
const SERIES_REFRESH_MS = 30 * 60_000;

/** An event with its number of occurrences, and what the API server has of it. */
interface Series {
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

/** Accepts events from the start, and sends them once {@linkcode run} has a client. */
export class EventRecorder implements EventSink {
  /** The open series. */
  readonly #open = new Map<string, Series>();
  /** The events to send, in order; a series is queued once, however often it occurred. */
  readonly #queue = new Set<Series>();
  #wake = Promise.withResolvers<void>();
  #sweep: Timer | undefined;
  #made = 0;
  #isRefusalLogged = false;
  /** Whether no event has been accepted or given up yet. */
  #isFirst = true;

  /**
   * `random` returns numbers from 0 to just below 1. `reporter` is the `controller`, e.g. `kube-proxy`, and
   * its `instance`, e.g. `kube-proxy-node-a`.
   */
  constructor(
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly random: () => number,
    private readonly reporter: { readonly controller: string; readonly instance: string },
  ) {}

  record(event: KubeEvent): void {
    const now = this.clock.wallNow();
    const key = keyOf(event);
    let series = this.#open.get(key);
    if (series === undefined) {
      series = { event, firstAt: now, lastAt: now, count: 1, sentCount: 0, sentAt: now };
      this.#open.set(key, series);
    } else {
      series.lastAt = now;
      // The second one makes it a series; later ones are sent with the others.
      if (++series.count !== 2) return;
    }
    if (!this.#enqueue(series)) {
      this.#open.delete(key);
      this.logger.verbose(2, "Dropped event, since too many wait", { reason: event.reason });
    }
  }

  /**
   * Sends events until the signal is aborted, then the queued ones, within 2 s: the event that
   * explains why a process ended is the last one. Does not wait for a server that does not answer.
   */
  async run(client: KubeClient, signal: AbortSignal): Promise<void> {
    const last = new AbortController();
    let lastWords: Timer | undefined;
    const onAbort = () => {
      lastWords = this.clock.setTimer(LAST_WORDS_MS, () => last.abort());
      this.#wake.resolve();
    };
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    try {
      for (let goesOn = true; goesOn && !last.signal.aborted;) {
        this.#armSweep(signal);
        const [series] = this.#queue;
        if (series === undefined) {
          if (signal.aborted) break;
          this.#wake = Promise.withResolvers();
          await this.#wake.promise;
          continue;
        }
        this.#queue.delete(series);
        // The event repeated while it was sent, and its new count was sent too.
        if (series.sentCount === series.count) continue;
        goesOn = await this.#deliver(client, series, signal, last.signal);
      }
    } finally {
      lastWords?.cancel();
      this.#sweep?.cancel();
      signal.removeEventListener("abort", onAbort);
    }
  }

  #enqueue(series: Series): boolean {
    if (!this.#queue.has(series) && this.#queue.size >= LONGEST_QUEUE) return false;
    this.#queue.add(series);
    this.#wake.resolve();
    return true;
  }

  /** Only while a series is open: a quiet node has no timer. */
  #armSweep(signal: AbortSignal): void {
    if (this.#sweep !== undefined || this.#open.size === 0 || signal.aborted) return;
    this.#sweep = this.clock.setTimer(SERIES_IDLE_MS, () => {
      this.#sweep = undefined;
      const now = this.clock.wallNow();
      for (const [key, series] of this.#open) {
        const isIdle = now - series.lastAt >= SERIES_IDLE_MS;
        if (isIdle) this.#open.delete(key);
        const isLate = isIdle || now - series.sentAt >= SERIES_REFRESH_MS;
        if (isLate && series.count > series.sentCount) this.#enqueue(series);
      }
      this.#armSweep(signal);
    });
  }

  /** Returns whether sending more makes sense. `last` aborts requests, `signal` aborts waits. */
  async #deliver(
    client: KubeClient,
    series: Series,
    signal: AbortSignal,
    last: AbortSignal,
  ): Promise<boolean> {
    for (let attempt = 1;; attempt++) {
      try {
        await this.#send(client, series, last);
        return true;
      } catch (error) {
        if (last.aborted) return false;
        const isLasting = !this.#mayWorkLater(error);
        if (isLasting || signal.aborted || attempt === MOST_ATTEMPTS) {
          this.#giveUp(series, error);
          return isLasting || !signal.aborted;
        }
      }
      const jitter = 1 + RETRY_JITTER * this.random();
      await this.clock.sleep(RETRY_MS * jitter, signal).catch(() => {});
      if (signal.aborted) return false;
    }
  }

  async #send(client: KubeClient, series: Series, signal: AbortSignal): Promise<void> {
    const { event: { type, reason, action, note, regarding }, firstAt, count, lastAt } = series;
    const { namespace = "default" } = regarding;
    const path = `/apis/events.k8s.io/v1/namespaces/${namespace}/events`;
    // The API rejects a series of one. Later repetitions have not been sent.
    const patch = count < 2 ? {} : { series: { count, lastObservedTime: microTime(lastAt) } };
    if (series.objectName !== undefined) {
      try {
        await client.patch(`${path}/${series.objectName}`, patch, signal);
        return this.#note(series, count);
      } catch (error) {
        // Events live for an hour: a long series outlives its object.
        if (!(error instanceof ApiError) || !error.isNotFound()) throw error;
      }
    }
    // As upstream: the object's name and a time in nanoseconds, here with a counter at its end.
    const nanoseconds = BigInt(this.clock.wallNow()) * 1_000_000n;
    const unique = (nanoseconds + BigInt(this.#made++ % 1_000_000)).toString(16);
    const name = `${regarding.name}.${unique}`;
    await client.create(path, {
      apiVersion: "events.k8s.io/v1",
      kind: "Event",
      metadata: { name, namespace },
      eventTime: microTime(firstAt),
      reportingController: this.reporter.controller,
      reportingInstance: cut(this.reporter.instance, LONGEST_INSTANCE),
      action,
      reason,
      regarding,
      note: cut(printableText(note), LONGEST_NOTE),
      type,
      ...patch,
    }, signal);
    series.objectName = name;
    this.#note(series, count);
  }

  #note(series: Series, count: number): void {
    this.#isFirst = false;
    series.sentCount = count;
    series.sentAt = this.clock.wallNow();
  }

  /**
   * No connection, no credentials, or a failing server, which one is that has just started and refuses
   * everything. Another rejected event would only be rejected again.
   */
  #mayWorkLater(error: unknown): boolean {
    if (error instanceof TransportError || error instanceof KubeAuthError) return true;
    if (!(error instanceof ApiError)) return false;
    return error.isServerError() || error.isTooManyRequests() || error.isUnauthorized() ||
      error.isForbidden() && this.#isFirst;
  }

  /** One line in the log: a process that may not create events would otherwise log nothing else. */
  #giveUp(series: Series, error: unknown): void {
    this.#isFirst = false;
    const key = keyOf(series.event);
    if (this.#open.get(key) === series) this.#open.delete(key);
    const { reason, regarding, note } = series.event;
    const fields = { reason, regarding: regarding.name, note, error };
    if (this.#isRefusalLogged) return this.logger.verbose(2, "Cannot post event", fields);
    this.#isRefusalLogged = true;
    this.logger.warn("Cannot post event; further failures are logged only at -v 2", fields);
  }
}

function keyOf({ type, reason, action, note, regarding }: KubeEvent): string {
  const { apiVersion, kind, namespace = "", name, uid = "" } = regarding;
  return [type, reason, action, note, apiVersion, kind, namespace, name, uid].join("\n");
}

/** Cuts between characters, never inside one. */
function cut(text: string, bytes: number): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(bytes));
  return text.slice(0, read);
}
