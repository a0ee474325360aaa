/**
 * Kubernetes Events of this process. Code that reports events takes an {@linkcode EventSink}.
 *
 * @module
 */

/** The object of an event. */
export interface EventRegarding {
  /** E.g. `v1`. */
  readonly apiVersion: string;
  /** E.g. `Node`, `Service`. */
  readonly kind: string;
  readonly name: string;
  /** Absent for cluster-wide objects, whose events go to namespace `default`, as upstream. */
  readonly namespace?: string;
  /**
   * Absent for the Node: the kubelet uses its name too, and `kubectl describe node` searches for
   * that.
   */
  readonly uid?: string;
}

/** One event. Events that differ only in time are one series at the API server. */
export interface KubeEvent {
  readonly type: "Normal" | "Warning";
  /** The reason as one CamelCase word for programs, e.g. `Starting`. */
  readonly reason: string;
  /** The action as one CamelCase word, e.g. `StartKubeProxy`. */
  readonly action: string;
  /** For people, one sentence; at most 1024 bytes are kept, the limit of events.k8s.io/v1. */
  readonly note: string;
  readonly regarding: EventRegarding;
}

/**
 * Receives events. Never throws and never waits: an event must not delay the work that it reports.
 */
export interface EventSink {
  record(event: KubeEvent): void;
}

/** Drops events, for a run without a cluster. */
export const NO_EVENTS: EventSink = { record: () => {} };

/** Returns the own Node for an event: without UID, as upstream. */
export function nodeRegarding(name: string): EventRegarding {
  return { apiVersion: "v1", kind: "Node", name };
}

/** The API's MicroTime: always six digits. */
export function microTime(milliseconds: number): string {
  return new Date(milliseconds).toISOString().replace(/Z$/, "000Z");
}
