import { type KubeObject, objectKey, type ObjectMeta } from "../api/kind.ts";
import type { EndpointSlice } from "../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../api/kinds/endpoints.ts";
import { SERVICE_NAME_LABEL } from "../api/labels.ts";
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import { type Endpoint, endpointsFromSlice } from "./endpoint.ts";
import {
  EndpointSliceCache,
  type EndpointSource,
  type EndpointSourceId,
} from "./endpoint_slice_cache.ts";
import { endpointsFromEndpoints } from "./endpoints_fallback.ts";
import type { ObjectProblem } from "../api/problem.ts";
import { ProblemCollector } from "../api/problem_collector.ts";
import {
  type NamespacedName,
  namespacedNameOf,
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "./service_port_name.ts";

/** The event of an informer: the object was set or deleted. */
type ObjectAction = "set" | "delete";

/** The changes between two drains. */
export interface EndpointsChanges {
  /** Services whose endpoints may differ. */
  readonly services: ReadonlySet<ServiceKey>;
  /** All endpoints of these ServicePorts; an empty list = the ServicePort has none any longer. */
  readonly endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]>;
  /** The times of the changes that caused this update, in milliseconds since 1970. */
  readonly triggerTimes: ReadonlyMap<ServiceKey, readonly number[]>;
  /** Whether one of the Services had or has a UDP port: only UDP flows can become stale. */
  readonly touchesUdp: boolean;
  readonly problems: readonly ObjectProblem[];
}

/** Options of an {@linkcode EndpointsChangeTracker}. */
interface EndpointsChangeTrackerOptions {
  readonly family: IpFamily;
  /** Name of the own node; empty = no endpoint is local. */
  readonly nodeName: string;
  /** Milliseconds since 1970. Earlier changes do not count for this process's latency. */
  readonly startedAtMs: number;
}

/** Limit per Service between two drains; the times are samples of a latency. */
const MOST_TRIGGER_TIMES = 1000;
/** Objects with this label belong to headless Services. */
const HEADLESS_LABEL = "service.kubernetes.io/headless";
/** Endpoints with this label belong to no Service, e.g. leader election of old controllers. */
const SKIP_MIRROR_LABEL = "endpointslice.kubernetes.io/skip-mirror";

/** Shared: with two IP families, every slice has another address type for one of the trackers. */
const NOTHING: readonly never[] = [];

/** Tracks EndpointSlices, and Endpoints of Services without a slice, of one IP family. */
export class EndpointsChangeTracker {
  readonly #options: EndpointsChangeTrackerOptions;
  readonly #cache = new EndpointSliceCache();
  readonly #triggerTimes = new Map<ServiceKey, number[]>();
  #pending = 0;
  /**
   * A slice of the other address type was added or removed, which may affect the Endpoints object.
   */
  #otherChanged = false;
  #total = 0;

  constructor(options: EndpointsChangeTrackerOptions) {
    this.#options = options;
  }

  /** Changes to objects of this family since the last complete drain. */
  get pending(): number {
    return this.#pending;
  }

  /** Whether a drain has work to do, including changes to objects of the other family. */
  get changed(): boolean {
    return this.#pending > 0 || this.#otherChanged;
  }

  /** Objects of this family seen since the start, changed or not. */
  get total(): number {
    return this.#total;
  }

  /** Number of Services with stored sources. */
  get size(): number {
    return this.#cache.size;
  }

  /**
   * Applies a new state of an EndpointSlice. Slices of another address type provide no endpoints.
   * Slices without the service-name label are for other consumers, and those of host names (`FQDN`)
   * for neither family: both are ignored, as in kube-proxy. If the service-name label changes, the
   * slice must be deleted in its old form first. Returns whether a sync has work to do; metadata
   * that is not read here is no change.
   */
  updateSlice(slice: EndpointSlice, action: ObjectAction): boolean {
    const { family, nodeName } = this.#options;
    const service = serviceOfSlice(slice);
    if (service === undefined) return false;
    const isOurs = slice.addressType === family;
    const isOther = !isOurs && IP_FAMILIES.some((other) => slice.addressType === other);
    if (isOurs) this.#total++;
    const key = serviceKey(service);
    const kind = isOurs ? "slice" : "otherSlice";
    const { name, creationTimestamp: createdAt = "" } = slice.metadata;
    const isIgnored = isHeadless(slice) || !(isOurs || isOther);
    if (action === "delete" || isIgnored) return this.#forget(key, { kind, name });
    // Written out: V8 gives a spread object a second part for the fields after it.
    if (isOther) {
      return this.#remember(key, { kind, name, createdAt: "", ports: NOTHING, problems: NOTHING });
    }

    const problems = new ProblemCollector("EndpointSlice", objectKey(slice));
    const ports = endpointsFromSlice(slice, { family, nodeName, service, problems });
    const triggerTime = triggerTimeOf(slice.metadata, problems);
    const source = { kind, name, createdAt, ports, problems: problems.problems } as const;
    return this.#remember(key, source, triggerTime);
  }

  /**
   * As {@linkcode updateSlice}, for an Endpoints object. It is used while its Service has no slice.
   */
  updateEndpoints(endpoints: Endpoints, action: ObjectAction): boolean {
    const { family, nodeName } = this.#options;
    const service = namespacedNameOf(endpoints);
    this.#total++;
    const key = serviceKey(service);
    const id = { kind: "endpoints", name: service.name } as const;
    const isMirrored = endpoints.metadata.labels?.[SKIP_MIRROR_LABEL] !== "true";
    if (action === "delete" || isHeadless(endpoints) || !isMirrored) return this.#forget(key, id);

    const problems = new ProblemCollector("Endpoints", key);
    const ports = endpointsFromEndpoints(endpoints, { family, nodeName, service, problems });
    const triggerTime = triggerTimeOf(endpoints.metadata, problems);
    const source = { ...id, createdAt: "", ports, problems: problems.problems };
    return this.#remember(key, source, triggerTime);
  }

  /** Services that the next drain must process; some may turn out unchanged. */
  get undrained(): number {
    return this.#cache.undrained;
  }

  /** Returns and forgets the changes of at most this many Services. */
  drain(limit = Infinity): EndpointsChanges {
    const drained = this.#cache.drain(limit);
    const ports = [...drained.values()].flatMap((service) => service.ports);
    const problems = [...drained.values()].flatMap((service) => service.problems);
    const changes: EndpointsChanges = {
      services: new Set(drained.keys()),
      endpoints: new Map(ports.map(({ key, endpoints }) => [key, endpoints])),
      triggerTimes: this.#takeTriggerTimes(drained.keys()),
      touchesUdp: ports.some(({ key }) => key.endsWith("/UDP")),
      problems,
    };
    if (this.#cache.undrained === 0) {
      this.#triggerTimes.clear();
      this.#pending = 0;
      this.#otherChanged = false;
    }
    return changes;
  }

  #takeTriggerTimes(services: Iterable<ServiceKey>): ReadonlyMap<ServiceKey, readonly number[]> {
    const taken = new Map<ServiceKey, readonly number[]>();
    if (this.#triggerTimes.size === 0) return taken;
    for (const service of services) {
      const times = this.#triggerTimes.get(service);
      if (times !== undefined) taken.set(service, times);
      this.#triggerTimes.delete(service);
    }
    return taken;
  }

  #remember(service: ServiceKey, source: EndpointSource, triggerTime?: number): boolean {
    if (!this.#cache.set(service, source)) return false;
    this.#count(source);
    if (triggerTime === undefined || triggerTime <= this.#options.startedAtMs) return true;
    const times = this.#triggerTimes.get(service);
    if (times === undefined) this.#triggerTimes.set(service, [triggerTime]);
    else if (times.length < MOST_TRIGGER_TIMES) times.push(triggerTime);
    return true;
  }

  #forget(service: ServiceKey, id: EndpointSourceId): boolean {
    if (!this.#cache.delete(service, id)) return false;
    this.#count(id);
    // The annotation of a deleted object dates from its last update, not from its deletion.
    if (id.kind !== "otherSlice") this.#triggerTimes.delete(service);
    return true;
  }

  #count({ kind }: EndpointSourceId): void {
    if (kind === "otherSlice") this.#otherChanged = true;
    else this.#pending++;
  }
}

function serviceOfSlice(slice: EndpointSlice): NamespacedName | undefined {
  const { namespace, name } = namespacedNameOf(slice);
  const serviceName = slice.metadata.labels?.[SERVICE_NAME_LABEL] ?? "";
  if (namespace === "" || name === "" || serviceName === "") return undefined;
  return { namespace, name: serviceName };
}

function isHeadless({ metadata }: KubeObject): boolean {
  return metadata.labels?.[HEADLESS_LABEL] !== undefined;
}

const TRIGGER_TIME_ANNOTATION = "endpoints.kubernetes.io/last-change-trigger-time";
/** RFC 3339; `Date.parse()` alone accepts many other formats. */
const RFC_3339 = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/**
 * Reads the annotation, in milliseconds since 1970: the start of the network programming latency.
 * Returns `undefined` if it is absent, or invalid, which is reported.
 */
export function triggerTimeOf(
  { annotations }: ObjectMeta,
  problems: ProblemCollector,
): number | undefined {
  const text = annotations?.[TRIGGER_TIME_ANNOTATION];
  if (text === undefined) return undefined;
  const [, seconds, fraction = "", offset] = RFC_3339.exec(text) ?? [];
  const time = Date.parse(`${seconds}${offset}`) + Number(`0${fraction}`) * 1000;
  if (!Number.isNaN(time)) return time;
  problems.report(
    `metadata.annotations['${TRIGGER_TIME_ANNOTATION}']`,
    text,
    "The latency of this change is not measured: the time has to be written as in RFC 3339",
  );
  return undefined;
}
