import { deepEqual } from "./deep_equal.ts";
import { mergeEndpoints, type PortEndpoints, reuseEndpoints } from "./endpoint.ts";
import { type ObjectProblem, problemText } from "../api/problem.ts";
import type { ServiceKey, ServicePortKey } from "./service_port_name.ts";

/** One object that provides endpoints for a Service, as one IP family reads it. */
export interface EndpointSource {
  /**
   * `otherSlice`: an EndpointSlice of another address type. It provides no endpoints for this
   * family, but a Service that has any slice ignores its Endpoints object.
   */
  readonly kind: "slice" | "otherSlice" | "endpoints";
  /** Name of the object. */
  readonly name: string;
  /** Creation time as written in the object, which sorts as text; empty = unknown. */
  readonly createdAt: string;
  readonly ports: readonly PortEndpoints[];
  /** The values of the object that could not be used. */
  readonly problems: readonly ObjectProblem[];
}

/** Identifies an {@linkcode EndpointSource} within its Service. */
export type EndpointSourceId = Pick<EndpointSource, "kind" | "name">;

/** The result of a drain for one Service. */
interface DrainedEndpoints {
  /** Every ServicePort that has or had endpoints; an empty list = it has none any longer. */
  readonly ports: readonly PortEndpoints[];
  /** Unusable values of its objects that were not reported before. */
  readonly problems: readonly ObjectProblem[];
}

const NO_SOURCES: readonly EndpointSource[] = [];
const NO_PROBLEMS: readonly ObjectProblem[] = [];
/** Up to this many sources are searched one by one; for more, an index is built. */
const FEW_SOURCES = 8;

/** The sources of a Service after the next drain, if there are many. */
interface IndexedSources {
  readonly byText: Map<string, EndpointSource>;
  /** Number of slices among them, of any address type. */
  slices: number;
}

/** A list of few sources is never changed: it may be the applied one. */
type Draft = readonly EndpointSource[] | IndexedSources;

/**
 * Collects changes until {@linkcode EndpointSliceCache.drain}. A call costs as much as its object
 * and, the first time after a drain, as much as its Service; without a change, it compares names. A
 * Service without objects uses no memory.
 */
export class EndpointSliceCache {
  readonly #applied = new Map<ServiceKey, readonly EndpointSource[]>();
  /** Of the Services that the next drain must process. */
  readonly #drafts = new Map<ServiceKey, Draft>();

  /** Services that the next drain must process. */
  get undrained(): number {
    return this.#drafts.size;
  }

  /** Number of Services with stored sources. */
  get size(): number {
    const added = this.#drafts.keys().filter((service) => !this.#applied.has(service));
    return this.#applied.size + added.toArray().length;
  }

  /** The latest state of one source, drained or not. */
  get(service: ServiceKey, id: EndpointSourceId): EndpointSource | undefined {
    const draft = this.#latest(service);
    return isList(draft) ? draft.find((each) => isSame(each, id)) : draft.byText.get(textOf(id));
  }

  /** Adds or replaces a source. Returns whether the endpoints of the Service may change. */
  set(service: ServiceKey, source: EndpointSource): boolean {
    const known = this.get(service, source);
    if (known !== undefined && deepEqual(known, source)) return false;
    const slim = known === undefined ? source : withKnownEndpoints(source, known);
    return this.#replace(service, known, slim);
  }

  /** Removes a source. Returns whether the endpoints of the Service may change. */
  delete(service: ServiceKey, id: EndpointSourceId): boolean {
    const known = this.get(service, id);
    return known !== undefined && this.#replace(service, known, undefined);
  }

  /** Applies the changes of at most this many Services and returns the Services that changed. */
  drain(limit = Infinity): ReadonlyMap<ServiceKey, DrainedEndpoints> {
    const drained = new Map<ServiceKey, DrainedEndpoints>();
    for (const [service, draft] of this.#drafts.entries().take(limit)) {
      const before = inEffect(this.#applied.get(service) ?? NO_SOURCES);
      // A copy without the spare capacity that V8 leaves in a list that grew; it is kept for long.
      const sources = isList(draft) ? draft : [...draft.byText.values()].slice();
      const after = inEffect(sources);
      this.#drafts.delete(service);
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

  #latest(service: ServiceKey): Draft {
    return this.#drafts.get(service) ?? this.#applied.get(service) ?? NO_SOURCES;
  }

  /** One of the two is defined. Returns whether the sources in effect change. */
  #replace(
    service: ServiceKey,
    known: EndpointSource | undefined,
    next: EndpointSource | undefined,
  ): boolean {
    const before = indexed(this.#latest(service));
    const hadSlices = hasSlices(before);
    const after = isList(before) ? replaced(before, known, next) : replaceIn(before, known, next);
    this.#drafts.set(service, after);
    if (known?.kind === "slice" || next?.kind === "slice") return true;
    if ((next ?? known)?.kind === "endpoints") return !hadSlices;
    const isFirstOrLast = hadSlices !== hasSlices(after);
    return isFirstOrLast && hasOthers(after);
  }
}

function isList(draft: Draft): draft is readonly EndpointSource[] {
  return Array.isArray(draft);
}

/** A long list gets an index, until the next drain. */
function indexed(draft: Draft): Draft {
  if (!isList(draft) || draft.length <= FEW_SOURCES) return draft;
  const byText = new Map(draft.map((source) => [textOf(source), source]));
  return { byText, slices: draft.filter(isSlice).length };
}

/** A new list, in which `next` has the place of `known`. */
function replaced(
  sources: readonly EndpointSource[],
  known: EndpointSource | undefined,
  next: EndpointSource | undefined,
): readonly EndpointSource[] {
  if (known === undefined) return next === undefined ? sources : [...sources, next];
  return sources.flatMap((source) => source === known ? next ?? [] : source);
}

function replaceIn(
  index: IndexedSources,
  known: EndpointSource | undefined,
  next: EndpointSource | undefined,
): IndexedSources {
  if (next !== undefined) index.byText.set(textOf(next), next);
  else if (known !== undefined) index.byText.delete(textOf(known));
  index.slices += (next && isSlice(next) ? 1 : 0) - (known && isSlice(known) ? 1 : 0);
  return index;
}

function hasSlices(draft: Draft): boolean {
  return isList(draft) ? draft.some(isSlice) : draft.slices > 0;
}

/** Whether there is an Endpoints object. */
function hasOthers(draft: Draft): boolean {
  return isList(draft)
    ? draft.some((source) => !isSlice(source))
    : draft.byText.size > draft.slices;
}

function isSame(source: EndpointSource, id: EndpointSourceId): boolean {
  return source.name === id.name && isSlice(source) === isSlice(id);
}

/** An object keeps its name if its kind changes from one kind of slice to the other. */
function textOf({ kind, name }: EndpointSourceId): string {
  return kind === "endpoints" ? `endpoints ${name}` : name;
}

function isSlice({ kind }: Pick<EndpointSourceId, "kind">): boolean {
  return kind !== "endpoints";
}

/** The sources in effect: the slices of this family or, without any slice, the Endpoints object. */
function inEffect(sources: readonly EndpointSource[]): readonly EndpointSource[] {
  return sources.some(isSlice) ? sources.filter(({ kind }) => kind === "slice") : sources;
}

function sameItems(left: readonly EndpointSource[], right: readonly EndpointSource[]): boolean {
  return left.length === right.length && left.every((source, index) => source === right[index]);
}

function withKnownEndpoints(source: EndpointSource, known: EndpointSource): EndpointSource {
  const before = new Map(known.ports.map((port) => [port.key, port]));
  const ports = source.ports.map((port) => {
    const old = before.get(port.key);
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
  // Of one object, each ServicePort is listed once.
  if (before.length === 0 && after.length === 1) return after[0]!.ports;
  const lists = new Map<ServicePortKey, PortEndpoints["endpoints"][]>();
  for (const { ports } of before) for (const { key } of ports) lists.set(key, []);
  for (const { ports } of [...after].sort(newestFirst)) {
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

function newProblems(
  before: readonly EndpointSource[],
  after: readonly EndpointSource[],
): readonly ObjectProblem[] {
  if (after.every(({ problems }) => problems.length === 0)) return NO_PROBLEMS;
  const known = new Set(before.flatMap(({ problems }) => problems).map(problemText));
  return after.flatMap(({ problems }) => problems)
    .filter((problem) => !known.has(problemText(problem)));
}

/** Orders equally old slices by name, so that the result never depends on the order of events. */
function newestFirst(left: EndpointSource, right: EndpointSource): number {
  if (left.createdAt !== right.createdAt) return left.createdAt > right.createdAt ? -1 : 1;
  return left.name < right.name ? -1 : 1;
}
