/**
 * The Event object of events.k8s.io/v1. Pure.
 *
 * @module
 */
import { printableText } from "../log/printable_text.ts";
import type { EventRegarding, KubeEvent } from "./event.ts";

/** An event and its number of occurrences. */
export interface EventSeries {
  readonly event: KubeEvent;
  /** The time of the first occurrence; milliseconds since 1970, as all times here. */
  readonly firstAt: number;
  readonly lastAt: number;
  readonly count: number;
}

/** The reporter of an event. */
export interface EventReporter {
  /** E.g. `kube-proxy`. */
  readonly controller: string;
  /** E.g. `kube-proxy-node-a`; at most 128 bytes are kept, the limit of the API. */
  readonly instance: string;
}

/** Limits of the API server's validation, in bytes. */
const LONGEST_NOTE = 1024;
const LONGEST_INSTANCE = 128;

/** Returns the path of the collection for events about an object. */
export function eventsPath({ namespace = "default" }: EventRegarding): string {
  return `/apis/events.k8s.io/v1/namespaces/${namespace}/events`;
}

/** Returns the object to create. `name` must be unique in the namespace. */
export function eventObject(
  series: EventSeries,
  { name, controller, instance }: EventReporter & { readonly name: string },
): Readonly<Record<string, unknown>> {
  const { event: { type, reason, action, note, regarding }, firstAt } = series;
  return {
    apiVersion: "events.k8s.io/v1",
    kind: "Event",
    metadata: { name, namespace: regarding.namespace ?? "default" },
    eventTime: microTime(firstAt),
    reportingController: controller,
    reportingInstance: cut(instance, LONGEST_INSTANCE),
    action,
    reason,
    regarding,
    note: cut(printableText(note), LONGEST_NOTE),
    type,
    ...seriesPatch(series),
  };
}

/** Returns the change of the object when the event repeats. The API rejects a series of one. */
export function seriesPatch({ count, lastAt }: EventSeries): Readonly<Record<string, unknown>> {
  return count < 2 ? {} : { series: { count, lastObservedTime: microTime(lastAt) } };
}

/** The API's MicroTime: always six digits. */
export function microTime(milliseconds: number): string {
  return new Date(milliseconds).toISOString().replace(/Z$/, "000Z");
}

/** Cuts between characters, never inside one. */
function cut(text: string, bytes: number): string {
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(bytes));
  return text.slice(0, read);
}
