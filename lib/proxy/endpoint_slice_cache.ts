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
/** Up to this many sources are searched one by one; for more, an index is built. */
const FEW_SOURCES = 8;

/** By kind and name, or a list of few: a `Map` for each of 10,000 Services would take megabytes. */
type Sources = readonly EndpointSource[] | Map<string, EndpointSource>;

/** The sources of a Service after the next drain. */
interface Draft {
  sources: Sources;
  /** Number of slices among them, of any address type. */
  slices: number;
}

/**
 * Collects changes until {@linkcode EndpointSliceCache.drain}. A call costs as much as its object
 * and, the first time after a drain, as much as its Service. A Service without objects uses no
 * memory.
 */
export class EndpointSliceCache {
  readonly #applied = new Map<ServiceKey, readonly EndpointSource[]>();
  readonly #drafts = new Map<ServiceKey, Draft>();
  /** Services whose draft differs from the applied sources. */
  readonly #pending = new Set<ServiceKey>();

  /** Services that the next drain must process. */
  get undrained(): number {
    return this.#pending.size;
  }

  /** Number of Services with stored sources. */
  get size(): number {
    const added = [...this.#pending].filter((service) => !this.#applied.has(service));
    return this.#applied.size + added.length;
  }

  /** The latest state of one source, drained or not. */
  get(service: ServiceKey, id: EndpointSourceId): EndpointSource | undefined {
    if (!this.#drafts.has(service)) {
      const applied = this.#applied.get(service) ?? NO_SOURCES;
      if (applied.length <= FEW_SOURCES) return findSource(applied, id);
    }
    return findSource(this.#draftOf(service).sources, id);
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
    for (const service of this.#pending.values().take(limit)) {
      const before = inEffect(this.#applied.get(service) ?? NO_SOURCES);
      const sources = listOf(this.#draftOf(service).sources);
      const after = inEffect(sources);
      this.#pending.delete(service);
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

  #draftOf(service: ServiceKey): Draft {
    const known = this.#drafts.get(service);
    if (known !== undefined) return known;
    const applied = this.#applied.get(service) ?? NO_SOURCES;
    const draft = { sources: toSources(applied), slices: applied.filter(isSlice).length };
    this.#drafts.set(service, draft);
    return draft;
  }

  /** One of the two is defined. Returns whether the sources in effect change. */
  #replace(
    service: ServiceKey,
    known: EndpointSource | undefined,
    next: EndpointSource | undefined,
  ): boolean {
    const draft = this.#draftOf(service);
    const hadSlices = draft.slices > 0;
    draft.sources = next ? withSource(draft.sources, next) : withoutSource(draft.sources, known!);
    draft.slices += (next && isSlice(next) ? 1 : 0) - (known && isSlice(known) ? 1 : 0);
    this.#pending.add(service);
    if (known?.kind === "slice" || next?.kind === "slice") return true;
    if ((next ?? known)?.kind === "endpoints") return !hadSlices;
    const isFirstOrLast = hadSlices !== (draft.slices > 0);
    const { sources } = draft;
    const count = sources instanceof Map ? sources.size : sources.length;
    return isFirstOrLast && count > draft.slices;
  }
}

/** An object keeps its name if its kind changes from one kind of slice to the other. */
function textOf({ kind, name }: EndpointSourceId): string {
  return kind === "endpoints" ? `endpoints ${name}` : name;
}

function findSource(sources: Sources, id: EndpointSourceId): EndpointSource | undefined {
  if (sources instanceof Map) return sources.get(textOf(id));
  return sources.find((source) => isSame(source, id));
}

function withSource(sources: Sources, next: EndpointSource): Sources {
  if (sources instanceof Map) return sources.set(textOf(next), next);
  const index = sources.findIndex((source) => isSame(source, next));
  return index < 0 ? toSources(sources.concat(next)) : sources.with(index, next);
}

function withoutSource(sources: Sources, id: EndpointSourceId): Sources {
  if (!(sources instanceof Map)) return sources.filter((source) => !isSame(source, id));
  sources.delete(textOf(id));
  return sources;
}

function toSources(list: readonly EndpointSource[]): Sources {
  if (list.length <= FEW_SOURCES) return list;
  return new Map(list.map((source) => [textOf(source), source]));
}

/** Without the spare capacity that V8 leaves in a list that grew: drained ones are kept for long. */
function listOf(sources: Sources): readonly EndpointSource[] {
  return sources instanceof Map ? [...sources.values()].slice() : sources;
}

/** Whether {@linkcode textOf} is the same. */
function isSame(left: EndpointSourceId, right: EndpointSourceId): boolean {
  return left.name === right.name && isSlice(left) === isSlice(right);
}

function isSlice({ kind }: EndpointSourceId): boolean {
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
  const known = new Set(before.flatMap(({ problems }) => problems).map(problemText));
  return after.flatMap(({ problems }) => problems)
    .filter((problem) => !known.has(problemText(problem)));
}

/** Orders equally old slices by name, so that the result never depends on the order of events. */
function newestFirst(left: EndpointSource, right: EndpointSource): number {
  if (left.createdAt !== right.createdAt) return left.createdAt > right.createdAt ? -1 : 1;
  return left.name < right.name ? -1 : 1;
}
