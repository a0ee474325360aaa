import type { Cidr } from "../net/cidr.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import type { AnnouncedPrefix, BgpPeer } from "./bgp_plan.ts";

/** The reasons why a prefix is or is not announced. */
export interface PrefixSource {
  readonly kind: AnnouncedPrefix["kind"];
  /** Absent for a range of pods or of cluster IPs. */
  readonly service?: ServiceKey;
  readonly to: readonly BgpPeer["role"][];
  /** The reason why this source does not announce it. */
  readonly obstacle?: string;
}

/** The settings of all announced prefixes. */
export type CommonAttributes = Pick<
  AnnouncedPrefix,
  "communities" | "largeCommunities" | "localPreference"
>;

/** Which kind a prefix of several sources has. */
const KINDS: readonly AnnouncedPrefix["kind"][] = [
  "load-balancer",
  "external-ip",
  "cluster-ip",
  "service-range",
  "pod-cidr",
];

/** The announced prefixes with their sources. A change costs what it touches, and one copied list. */
export class Announcements {
  readonly #sources = new Map<Cidr, Map<string, PrefixSource>>();
  readonly #prefixesOf = new Map<string, ReadonlySet<Cidr>>();
  readonly #announced = new Map<Cidr, AnnouncedPrefix>();
  #sorted: readonly AnnouncedPrefix[] = [];
  #attributes: CommonAttributes = { communities: [], largeCommunities: [] };
  /** The reason why the node announces no address of a Service. */
  #exclusion: string | undefined;
  readonly #touched = new Set<Cidr>();
  /** Prefixes that changed since the last complete update. */
  #changed = new Set<Cidr>();

  /** Sorted by prefix, as of the last update. */
  get sorted(): readonly AnnouncedPrefix[] {
    return this.#sorted;
  }

  /** Replaces the prefixes of a source. */
  set(source: string, prefixes: ReadonlyMap<Cidr, PrefixSource>): void {
    for (const prefix of this.#prefixesOf.get(source) ?? []) {
      const sources = this.#sources.get(prefix)!;
      sources.delete(source);
      if (sources.size === 0) this.#sources.delete(prefix);
      this.#touched.add(prefix);
    }
    for (const [prefix, found] of prefixes) {
      this.#sources.getOrInsertComputed(prefix, () => new Map()).set(source, found);
      this.#touched.add(prefix);
    }
    if (prefixes.size === 0) this.#prefixesOf.delete(source);
    else this.#prefixesOf.set(source, new Set(prefixes.keys()));
  }

  /** Sets what all prefixes have in common. */
  setAttributes(attributes: CommonAttributes): void {
    if (JSON.stringify(attributes) === JSON.stringify(this.#attributes)) return;
    this.#attributes = attributes;
    for (const prefix of this.#sources.keys()) this.#touched.add(prefix);
  }

  /** Sets why the node announces no address of a Service; `undefined` = it does. Ranges of pods stay. */
  setExclusion(reason: string | undefined): void {
    if (reason === this.#exclusion) return;
    this.#exclusion = reason;
    for (const prefix of this.#sources.keys()) this.#touched.add(prefix);
  }

  /** What is known of a prefix. */
  sourcesOf(prefix: Cidr): readonly PrefixSource[] {
    return [...this.#sources.get(prefix)?.values() ?? []].map((source) => {
      const obstacle = source.obstacle ?? this.#exclusionOf(source);
      return { ...source, ...(obstacle !== undefined && { obstacle }) };
    });
  }

  #exclusionOf({ kind }: PrefixSource): string | undefined {
    return kind === "pod-cidr" ? undefined : this.#exclusion;
  }

  /**
   * Brings the list up to date, in steps of one prefix. Returns the prefixes that changed. The update
   * after an incomplete one completes it.
   */
  *updateInSteps(): Generator<void, ReadonlySet<Cidr>, void> {
    const changed = this.#changed;
    for (const prefix of this.#touched) {
      yield;
      const before = this.#announced.get(prefix);
      const after = this.#announce(prefix);
      if (isSame(before, after)) continue;
      if (after) this.#announced.set(prefix, after);
      else this.#announced.delete(prefix);
      changed.add(prefix);
    }
    if (changed.size > 0) this.#sorted = this.#merged(changed);
    this.#touched.clear();
    this.#changed = new Set();
    return changed;
  }

  #announce(prefix: Cidr): AnnouncedPrefix | undefined {
    let rank = KINDS.length;
    const roles = new Set<BgpPeer["role"]>();
    for (const source of this.#sources.get(prefix)?.values() ?? []) {
      if (source.obstacle !== undefined || this.#exclusionOf(source) !== undefined) continue;
      rank = Math.min(rank, KINDS.indexOf(source.kind));
      for (const role of source.to) roles.add(role);
    }
    const kind = KINDS[rank];
    return kind && { prefix, to: [...roles].sort(), kind, ...this.#attributes };
  }

  /** Merges the sorted list with the changed prefixes. */
  #merged(changed: ReadonlySet<Cidr>): readonly AnnouncedPrefix[] {
    const added = [...changed].sort().flatMap((prefix) => this.#announced.get(prefix) ?? []);
    const merged: AnnouncedPrefix[] = [];
    let next = 0;
    for (const known of this.#sorted) {
      if (changed.has(known.prefix)) continue;
      while (next < added.length && added[next]!.prefix < known.prefix) merged.push(added[next++]!);
      merged.push(known);
    }
    // Not push(...added): some 100,000 items are too many arguments.
    return merged.concat(added.slice(next));
  }
}

/** Whether a prefix is announced alike. Attributes are replaced as a whole. */
function isSame(left: AnnouncedPrefix | undefined, right: AnnouncedPrefix | undefined): boolean {
  return left?.kind === right?.kind && left?.communities === right?.communities &&
    left?.largeCommunities === right?.largeCommunities &&
    left?.localPreference === right?.localPreference && left?.to.join() === right?.to.join();
}
