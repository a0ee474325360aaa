/**
 * The objects that give endpoints to Services, and what they come to together.
 *
 * @module
 */
import { deepEqual } from "./deep_equal.ts";
import { mergeEndpoints, type PortEndpoints, reuseEndpoints } from "./endpoint.ts";
import type { ObjectProblem } from "./problem.ts";
import type { ServiceKey, ServicePortKey } from "./service_port_name.ts";
import { take } from "./take.ts";

/** One object that gives endpoints to a Service, as one IP family reads it. */
export interface EndpointSource {
  /**
   * `otherSlice`: an EndpointSlice of another address type. It gives no endpoints to this family,
   * but a Service that has any slice does without its Endpoints object.
   */
  readonly kind: "slice" | "otherSlice" | "endpoints";
  /** Name of the object. */
  readonly name: string;
  /** Creation time as written in the object, which sorts as text; empty = unknown. */
  readonly createdAt: string;
  readonly ports: readonly PortEndpoints[];
  /** What of the object could not be used. */
  readonly problems: readonly ObjectProblem[];
}

/** What identifies an {@linkcode EndpointSource} inside its Service. */
export type EndpointSourceId = Pick<EndpointSource, "kind" | "name">;

/** What a drain says of one Service. */
export interface DrainedEndpoints {
  /** Every ServicePort that has or had endpoints; an empty list = it has none any more. */
  readonly ports: readonly PortEndpoints[];
  /** What of its objects cannot be used, as far as it was not said before. */
  readonly problems: readonly ObjectProblem[];
}

const NO_SOURCES: readonly EndpointSource[] = [];

/**
 * Collects changes until {@linkcode EndpointSliceCache.drain}. A call costs what its Service costs,
 * never more; a Service without objects takes no memory.
 */
export class EndpointSliceCache {
  readonly #applied = new Map<ServiceKey, readonly EndpointSource[]>();
  /** The sources of a Service as they will be after the drain. */
  readonly #pending = new Map<ServiceKey, readonly EndpointSource[]>();

  /** Services that the next drain has to look at. */
  get undrained(): number {
    return this.#pending.size;
  }

  /** Services of which something is kept. */
  get size(): number {
    const added = [...this.#pending.keys()].filter((service) => !this.#applied.has(service));
    return this.#applied.size + added.length;
  }

  /** One source as it was set last, drained or not. */
  get(service: ServiceKey, id: EndpointSourceId): EndpointSource | undefined {
    return this.#latest(service).find((source) => isSame(source, id));
  }

  /** Adds or replaces a source. Returns whether the endpoints of the Service may differ for it. */
  set(service: ServiceKey, source: EndpointSource): boolean {
    const known = this.get(service, source);
    if (known !== undefined && deepEqual(known, source)) return false;
    const slim = known === undefined ? source : withKnownEndpoints(source, known);
    const others = this.#latest(service).filter((other) => other !== known);
    // Not [...others, slim]: V8 gives such a list room for 17 items, and it is kept for long.
    return this.#replace(service, others.concat(slim));
  }

  /** Takes a source away. Returns whether the endpoints of the Service may differ for it. */
  delete(service: ServiceKey, id: EndpointSourceId): boolean {
    const known = this.get(service, id);
    if (known === undefined) return false;
    return this.#replace(service, this.#latest(service).filter((other) => other !== known));
  }

  /** Brings the changes of so many Services into effect, and returns those with an effect. */
  drain(limit = Infinity): ReadonlyMap<ServiceKey, DrainedEndpoints> {
    const drained = new Map<ServiceKey, DrainedEndpoints>();
    for (const [service, sources] of take(this.#pending, limit)) {
      const before = inEffect(this.#applied.get(service) ?? NO_SOURCES);
      const after = inEffect(sources);
      if (sources.length === 0) this.#applied.delete(service);
      else this.#applied.set(service, sources);
      if (sameItems(before, after)) continue;
      drained.set(service, {
        ports: replacePorts(before, after),
        problems: newProblems(before, after),
      });
    }
    return drained;
  }

  #latest(service: ServiceKey): readonly EndpointSource[] {
    return this.#pending.get(service) ?? this.#applied.get(service) ?? NO_SOURCES;
  }

  #replace(service: ServiceKey, sources: readonly EndpointSource[]): boolean {
    const before = inEffect(this.#latest(service));
    this.#pending.set(service, sources);
    return !sameItems(before, inEffect(sources));
  }
}

/** An object keeps its name when its kind changes from one kind of slice to the other. */
function isSame(source: EndpointSource, id: EndpointSourceId): boolean {
  return source.name === id.name && (source.kind === "endpoints") === (id.kind === "endpoints");
}

/** The sources that count: the slices of this family or, without any slice, the Endpoints object. */
function inEffect(sources: readonly EndpointSource[]): readonly EndpointSource[] {
  const onlyEndpoints = sources.every(({ kind }) => kind === "endpoints");
  return onlyEndpoints ? sources : sources.filter(({ kind }) => kind === "slice");
}

function sameItems(left: readonly EndpointSource[], right: readonly EndpointSource[]): boolean {
  return left.length === right.length && left.every((source, index) => source === right[index]);
}

function withKnownEndpoints(source: EndpointSource, known: EndpointSource): EndpointSource {
  const ports = source.ports.map((port) => {
    const old = known.ports.find(({ key }) => key === port.key);
    return old === undefined
      ? port
      : { key: old.key, endpoints: reuseEndpoints(old.endpoints, port.endpoints) };
  });
  return { ...source, ports };
}

function replacePorts(
  before: readonly EndpointSource[],
  after: readonly EndpointSource[],
): readonly PortEndpoints[] {
  const lists = new Map<ServicePortKey, PortEndpoints["endpoints"][]>();
  for (const { ports } of before) for (const { key } of ports) lists.set(key, []);
  for (const { ports } of [...after].sort(newestFirst)) {
    for (const { key, endpoints } of ports) lists.set(key, [...lists.get(key) ?? [], endpoints]);
  }
  // A ServicePort of one object, by far the most common, shares that object's list.
  return [...lists].map(([key, [only, ...others]]) => ({
    key,
    endpoints: others.length === 0 ? only ?? [] : mergeEndpoints([only ?? [], ...others]),
  }));
}

function newProblems(
  before: readonly EndpointSource[],
  after: readonly EndpointSource[],
): readonly ObjectProblem[] {
  const known = before.flatMap(({ problems }) => problems);
  return after.flatMap(({ problems }) => problems)
    .filter((problem) => !known.some((old) => deepEqual(old, problem)));
}

/** Equally old slices are told apart by name, so that the winner never depends on the order of events. */
function newestFirst(left: EndpointSource, right: EndpointSource): number {
  if (left.createdAt !== right.createdAt) return left.createdAt > right.createdAt ? -1 : 1;
  return left.name < right.name ? -1 : 1;
}
