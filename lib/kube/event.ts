/**
 * Kubernetes Events as this process tells them; whoever has something to tell takes an
 * {@linkcode EventSink}.
 *
 * @module
 */

/** The object that an event is about. */
export interface EventRegarding {
  /** E.g. `v1`. */
  readonly apiVersion: string;
  /** E.g. `Node`, `Service`. */
  readonly kind: string;
  readonly name: string;
  /** Absent for cluster-wide objects, whose events land in namespace `default` as upstream's do. */
  readonly namespace?: string;
  /** Absent for the Node: the kubelet names it by its name too, and `kubectl describe node` looks for that. */
  readonly uid?: string;
}

/** One event. Two that differ in nothing but the time are one series at the API server. */
export interface KubeEvent {
  readonly type: "Normal" | "Warning";
  /** Why, as one CamelCase word for programs, e.g. `Starting`. */
  readonly reason: string;
  /** What was being done, as one CamelCase word, e.g. `StartKubeProxy`. */
  readonly action: string;
  /** For people, one sentence; at most 1024 bytes are kept, the limit of events.k8s.io/v1. */
  readonly note: string;
  readonly regarding: EventRegarding;
}

/** Takes events. Never throws and never waits: an event is worth less than what it tells of. */
export interface EventSink {
  record(event: KubeEvent): void;
}

/** Takes events where there is no cluster to tell them to. */
export const NO_EVENTS: EventSink = { record: () => {} };

/** The own Node as an event names it: without UID, as upstream. */
export function nodeRegarding(name: string): EventRegarding {
  return { apiVersion: "v1", kind: "Node", name };
}
