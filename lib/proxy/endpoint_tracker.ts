import { type KubeObject, objectKey, type ObjectMeta } from "../api/kind.ts";
import { type EndpointSlice, TRIGGER_TIME_ANNOTATION } from "../api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../api/kinds/endpoints.ts";
import { HEADLESS_LABEL, SERVICE_NAME_LABEL, SKIP_MIRROR_LABEL } from "../api/labels.ts";
import { type ObjectProblem, ProblemCollector } from "../api/problem.ts";
import type { EndpointPlace } from "../api/service_annotations.ts";
import { IP_FAMILIES, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import { SetIndex } from "../net/set_index.ts";
import { deepEqual } from "./deep_equal.ts";
import {
  type Endpoint,
  endpointKey,
  endpointsFromEndpoints,
  endpointsFromSlice,
  mergeEndpoints,
  type PortEndpoints,
  reuseEndpoints,
} from "./endpoint.ts";
import {
  type NamespacedName,
  namespacedNameOf,
  type ServiceKey,
  serviceKey,
  serviceKeyOfPort,
  type ServicePortKey,
} from "./service_port_name.ts";

/** One object that provides endpoints for a Service, as this IP family reads it. */
interface EndpointSource {
  /** The name of the slice; {@linkcode FALLBACK} is the Endpoints object, of which there is one. */
  readonly name: string;
  /** Creation time as written in the object, which sorts as text; empty = unknown. */
  readonly createdAt: string;
  readonly ports: readonly PortEndpoints[];
  /** The values of the object that could not be used. */
  readonly problems: readonly ObjectProblem[];
  /** Number of endpoints of a slice that has no port for them. */
  readonly portless?: number;
}

/** Almost always there is one, and a map for each of 10,000 Services would take megabytes. */
type Sources = EndpointSource | Map<string, EndpointSource>;

/** A slice as this family sees it. */
interface SlicePlace {
  readonly service: NamespacedName;
  readonly name: string;
  /** Otherwise it has the other address type. */
  readonly isOurs: boolean;
}

/** No slice has this name. */
const FALLBACK = "";
const NO_SOURCES: readonly EndpointSource[] = [];
const NO_ENDPOINTS: readonly Endpoint[] = [];
/** Limit per Service between two drains; the times are samples of a latency. */
const MOST_TRIGGER_TIMES = 1000;
/** Slices, and ports of each, that are named where a ServicePort has no endpoints. */
const MOST_SAID = 5;

/**
 * The endpoints of one IP family, from EndpointSlices, and from Endpoints of Services that have no slice
 * of any address type. Changes wait for the next {@linkcode drain}. A call costs as much as its object
 * and, the first time after a drain, as much as its Service.
 */
export class EndpointTracker {
  readonly #family: IpFamily;
  readonly #nodeName: string;
  readonly #startedAtMs: number;
  readonly #endpoints = new Map<ServicePortKey, readonly Endpoint[]>();
  readonly #sources = new Map<ServiceKey, Sources>();
  /** Slices of the other address type: a Service that has any ignores its Endpoints object. */
  readonly #others = new SetIndex<ServiceKey, string>();
  /** The changed Services, with the sources that were in effect at the last drain. */
  readonly #before = new Map<ServiceKey, readonly EndpointSource[]>();
  readonly #triggerTimes = new Map<ServiceKey, number[]>();
  #pending = 0;
  #total = 0;

  /**
   * `nodeName`: the own node; empty = no endpoint is local. `startedAtMs`: since 1970; earlier changes do
   * not count for this process's latency.
   */
  constructor(family: IpFamily, nodeName: string, startedAtMs: number) {
    this.#family = family;
    this.#nodeName = nodeName;
    this.#startedAtMs = startedAtMs;
  }

  /**
   * As of the last drain, sorted by key. A ServicePort without endpoints has no entry. Equal lists keep
   * their identity.
   */
  get endpoints(): ReadonlyMap<ServicePortKey, readonly Endpoint[]> {
    return this.#endpoints;
  }

  /** Changes to objects of this family since the last complete drain. */
  get pending(): number {
    return this.#pending;
  }

  /** Services that the next drain must process; some may turn out unchanged. */
  get undrained(): number {
    return this.#before.size;
  }

  /** Objects of this family seen since the start, changed or not. */
  get total(): number {
    return this.#total;
  }

  /** Number of Services with an object. */
  get size(): number {
    return new Set([...this.#sources.keys(), ...this.#others.keys()]).size;
  }

  /**
   * Applies the change of an EndpointSlice; either side may be absent, and a change may move it to
   * another Service. Slices without the service-name label are for other consumers, and those of host
   * names (`FQDN`) for neither family: both are ignored, as in kube-proxy. Returns whether a sync has
   * work to do; metadata that is not read here is no change.
   */
  updateSlice(previous: EndpointSlice | undefined, current: EndpointSlice | undefined): boolean {
    const before = previous && placeOf(previous, this.#family);
    const after = current && placeOf(current, this.#family);
    if ((current ?? previous)?.addressType === this.#family && (after ?? before)) this.#total++;
    const isGone = before !== undefined && (after === undefined || !deepEqual(before, after));
    const isGoneDue = isGone && this.#removeSlice(before);
    if (current === undefined || after === undefined) return isGoneDue;
    const { service, name, isOurs } = after;
    const key = serviceKey(service);
    if (isHeadless(current)) return this.#removeSlice(after) || isGoneDue;
    if (!isOurs) {
      if ([...this.#others.at(key)].includes(name)) return isGoneDue;
      return this.#changeOthers(key, () => this.#others.add(key, name)) || isGoneDue;
    }
    const [family, nodeName] = [this.#family, this.#nodeName];
    const problems = new ProblemCollector("EndpointSlice", objectKey(current));
    const ports = endpointsFromSlice(current, { family, nodeName, service, problems });
    const triggerTime = triggerTimeOf(current.metadata, problems);
    const createdAt = current.metadata.creationTimestamp ?? "";
    const portless = current.ports.length === 0 ? current.endpoints.length : 0;
    const source = {
      name,
      createdAt,
      ports,
      problems: problems.problems,
      ...(portless > 0 && { portless }),
    };
    return this.#set(key, source, triggerTime) || isGoneDue;
  }

  /** As {@linkcode updateSlice}, for an Endpoints object. */
  updateEndpoints(previous: Endpoints | undefined, current: Endpoints | undefined): boolean {
    const object = current ?? previous;
    if (object === undefined) return false;
    this.#total++;
    const service = namespacedNameOf(object);
    const key = serviceKey(service);
    // Without mirroring it belongs to no Service, e.g. to the leader election of old controllers.
    const isMirrored = current?.metadata.labels?.[SKIP_MIRROR_LABEL] !== "true";
    if (current === undefined || isHeadless(current) || !isMirrored) {
      return this.#delete(key, FALLBACK);
    }
    const [family, nodeName] = [this.#family, this.#nodeName];
    const problems = new ProblemCollector("Endpoints", key);
    const ports = endpointsFromEndpoints(current, { family, nodeName, service, problems });
    const triggerTime = triggerTimeOf(current.metadata, problems);
    const source = { name: FALLBACK, createdAt: "", ports, problems: problems.problems };
    return this.#set(key, source, triggerTime);
  }

  /**
   * Says which objects of a Service have endpoints, but for other ports than this one, which has none:
   * `slice web-1 has 1 endpoint, but its port is 'web'; the Service has 'http'`. At most
   * {@linkcode MOST_SAID}, as of the last update.
   */
  otherPorts(key: ServicePortKey): readonly string[] {
    if (this.#endpoints.has(key)) return [];
    const service = serviceKeyOfPort(key);
    const wanted = key.slice(service.length);
    return this.#inEffect(service).values().flatMap(({ name, ports, portless = 0 }) => {
      const filled = ports.values().filter(({ endpoints }) => endpoints.length > 0)
        .take(MOST_SAID + 1).toArray();
      const count = filled[0]?.endpoints.length ?? portless;
      if (count === 0 || filled.some((port) => port.key === key)) return [];
      const object = name === FALLBACK ? "the Endpoints object" : `slice ${name}`;
      const others = otherPortsText(filled.map((port) => port.key.slice(service.length)), wanted);
      return [`${object} has ${count} endpoint${count === 1 ? "" : "s"}, but ${others}`];
    }).take(MOST_SAID).toArray();
  }

  /**
   * Returns the places of this family at which a Service has no endpoint, for any of its ports. None while it
   * has no endpoints at all. As of the last update.
   */
  unusedPlaces<Place extends EndpointPlace>(
    service: ServiceKey,
    places: readonly Place[],
  ): readonly Place[] {
    const found = new Set<string>();
    for (const { ports } of this.#inEffect(service)) {
      for (const { key, address } of ports.flatMap(({ endpoints }) => endpoints)) {
        found.add(key).add(address);
      }
    }
    if (found.size === 0) return [];
    return places.filter(({ address, port }) =>
      ipFamilyOf(address) === this.#family &&
      !found.has(port === undefined ? address : endpointKey(address, port))
    );
  }

  /**
   * Applies the changes of at most this many Services. Returns the Services whose objects changed and
   * the ServicePorts whose endpoints did, the times of these changes in milliseconds since 1970, and the
   * problems of new objects.
   */
  drain(limit = Infinity): {
    readonly services: readonly ServiceKey[];
    readonly keys: readonly ServicePortKey[];
    readonly triggerTimes: readonly number[];
    readonly problems: readonly ObjectProblem[];
  } {
    const services: ServiceKey[] = [];
    const keys: ServicePortKey[] = [];
    const triggerTimes: number[] = [];
    const problems: ObjectProblem[] = [];
    for (const [service, before] of this.#before.entries().take(limit)) {
      this.#before.delete(service);
      const after = this.#inEffect(service);
      if (isSame(before, after)) continue;
      services.push(service);
      for (const time of this.#triggerTimes.get(service) ?? []) triggerTimes.push(time);
      for (const source of after) if (!before.includes(source)) problems.push(...source.problems);
      for (const { key, endpoints } of replacePorts(before, after)) {
        if (deepEqual(this.#endpoints.get(key) ?? NO_ENDPOINTS, endpoints)) continue;
        if (endpoints.length === 0) this.#endpoints.delete(key);
        else this.#endpoints.set(key, endpoints);
        keys.push(key);
      }
      this.#triggerTimes.delete(service);
    }
    if (this.#before.size === 0) {
      this.#triggerTimes.clear();
      this.#pending = 0;
    }
    return { services, keys, triggerTimes, problems };
  }

  #removeSlice({ service, name, isOurs }: SlicePlace): boolean {
    const key = serviceKey(service);
    if (isOurs) return this.#delete(key, name);
    if (![...this.#others.at(key)].includes(name)) return false;
    return this.#changeOthers(key, () => this.#others.delete(key, name));
  }

  /** Returns whether the Endpoints object may come into effect, or no longer be. */
  #changeOthers(service: ServiceKey, change: () => void): boolean {
    const hasFallback = this.#get(service, FALLBACK) !== undefined;
    if (hasFallback) this.#remember(service);
    change();
    return hasFallback;
  }

  #set(service: ServiceKey, source: EndpointSource, triggerTime: number | undefined): boolean {
    const known = this.#get(service, source.name);
    if (known !== undefined && deepEqual(known, source)) return false;
    const isDue = this.#replace(service, source.name, known ? withKnown(source, known) : source);
    if (!isDue || triggerTime === undefined || triggerTime <= this.#startedAtMs) return isDue;
    const times = this.#triggerTimes.get(service);
    if (times === undefined) this.#triggerTimes.set(service, [triggerTime]);
    else if (times.length < MOST_TRIGGER_TIMES) times.push(triggerTime);
    return isDue;
  }

  #delete(service: ServiceKey, name: string): boolean {
    if (this.#get(service, name) === undefined) return false;
    // The annotation of a deleted object dates from its last update, not from its deletion.
    this.#triggerTimes.delete(service);
    return this.#replace(service, name, undefined);
  }

  #get(service: ServiceKey, name: string): EndpointSource | undefined {
    const sources = this.#sources.get(service);
    if (sources instanceof Map) return sources.get(name);
    return sources?.name === name ? sources : undefined;
  }

  /** Returns whether the sources in effect change. */
  #replace(service: ServiceKey, name: string, next: EndpointSource | undefined): boolean {
    const isDue = name !== FALLBACK || !this.#hasSlices(service);
    if (isDue) {
      this.#remember(service);
      this.#pending++;
    }
    const sources = this.#sources.get(service);
    if (sources instanceof Map) {
      if (next !== undefined) sources.set(name, next);
      else sources.delete(name);
      if (sources.size === 0) this.#sources.delete(service);
    } else if (next === undefined) this.#sources.delete(service);
    else if (sources === undefined || sources.name === name) this.#sources.set(service, next);
    else this.#sources.set(service, new Map([[sources.name, sources], [name, next]]));
    return isDue;
  }

  #remember(service: ServiceKey): void {
    if (!this.#before.has(service)) this.#before.set(service, this.#inEffect(service));
  }

  /** The sources in effect: the slices of this family or, without any slice, the Endpoints object. */
  #inEffect(service: ServiceKey): readonly EndpointSource[] {
    const sources = this.#sources.get(service);
    if (sources === undefined) return NO_SOURCES;
    const all = sources instanceof Map ? [...sources.values()] : [sources];
    return this.#hasSlices(service) ? all.filter(({ name }) => name !== FALLBACK) : all;
  }

  /** Whether a Service has slices, of any address type. */
  #hasSlices(service: ServiceKey): boolean {
    if (this.#others.has(service)) return true;
    const sources = this.#sources.get(service);
    if (!(sources instanceof Map)) return sources !== undefined && sources.name !== FALLBACK;
    return sources.size > (sources.has(FALLBACK) ? 1 : 0);
  }
}

function isSame(left: readonly EndpointSource[], right: readonly EndpointSource[]): boolean {
  return left.length === right.length && left.every((source, index) => source === right[index]);
}

/** Returns `undefined` for a slice that neither family reads. */
function placeOf(slice: EndpointSlice, family: IpFamily): SlicePlace | undefined {
  const { namespace, name } = namespacedNameOf(slice);
  const service = slice.metadata.labels?.[SERVICE_NAME_LABEL] ?? "";
  if (namespace === "" || name === "" || service === "") return undefined;
  if (!IP_FAMILIES.some((each) => slice.addressType === each)) return undefined;
  return { service: { namespace, name: service }, name, isOurs: slice.addressType === family };
}

/** Compares ports as `:name/PROTOCOL`, or `/PROTOCOL` where they have no name. */
function otherPortsText(found: readonly string[], wanted: string): string {
  const protocolOf = (port: string) => port.slice(port.lastIndexOf("/"));
  const isSameProtocol = found.every((port) => protocolOf(port) === protocolOf(wanted));
  const text = (port: string) => {
    const name = port.slice(1, port.lastIndexOf("/"));
    const quoted = port.startsWith(":") ? `'${name}'` : "one without a name";
    return isSameProtocol ? quoted : `${quoted} (${protocolOf(port).slice(1)})`;
  };
  const own = `the Service has ${text(wanted)}`;
  if (found.length === 0) return `it has no port; ${own}`;
  const names = found.slice(0, MOST_SAID).map(text).join(", ");
  const more = found.length > MOST_SAID ? " and more" : "";
  return `its ${found.length === 1 ? "port is" : "ports are"} ${names}${more}; ${own}`;
}

function isHeadless({ metadata }: KubeObject): boolean {
  return metadata.labels?.[HEADLESS_LABEL] !== undefined;
}

/** The source with the known objects where they are equal: one copy in memory, and cheap comparisons. */
function withKnown(source: EndpointSource, known: EndpointSource): EndpointSource {
  const before = new Map(known.ports.map((port) => [port.key, port]));
  const ports = source.ports.map((port) => {
    const old = before.get(port.key);
    return old === undefined
      ? port
      : { key: old.key, endpoints: reuseEndpoints(old.endpoints, port.endpoints) };
  });
  return { ...source, ports };
}

/** Every ServicePort that has or had endpoints; an empty list = it has none any longer. */
function replacePorts(
  before: readonly EndpointSource[],
  after: readonly EndpointSource[],
): readonly PortEndpoints[] {
  // Of one object, each ServicePort is listed once.
  if (before.length === 0 && after.length === 1) return after[0]!.ports;
  const lists = new Map<ServicePortKey, PortEndpoints["endpoints"][]>();
  for (const { ports } of before) for (const { key } of ports) lists.set(key, []);
  for (const { ports } of after.toSorted(newestFirst)) {
    for (const { key, endpoints } of ports) {
      const others = lists.get(key);
      if (others === undefined) lists.set(key, [endpoints]);
      else others.push(endpoints);
    }
  }
  // Most ServicePorts come from one object and share that object's list.
  return [...lists].map(([key, [only, ...others]]) => ({
    key,
    endpoints: others.length === 0 ? only ?? [] : mergeEndpoints([only ?? [], ...others]),
  }));
}

/** Orders equally old slices by name, so that the result never depends on the order of events. */
function newestFirst(left: EndpointSource, right: EndpointSource): number {
  if (left.createdAt !== right.createdAt) return left.createdAt > right.createdAt ? -1 : 1;
  return left.name < right.name ? -1 : 1;
}

/** RFC 3339; `Date.parse()` alone accepts many other formats. */
const RFC_3339 = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)$/;

/**
 * Reads the annotation, in milliseconds since 1970: the start of the network programming latency.
 * Returns `undefined` if it is absent, or invalid, which is reported.
 */
function triggerTimeOf(
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
