import type { Cidr } from "../net/cidr.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import type { AnnouncedPrefix, BgpPeer } from "./bgp_plan.ts";

/** Why a prefix is announced, or is not. */
export interface PrefixSource {
  readonly kind: AnnouncedPrefix["kind"];
  /** Absent for a range of pods or of cluster IPs. */
  readonly service?: ServiceKey;
  readonly to: readonly BgpPeer["role"][];
  /** Why this source does not announce it. */
  readonly obstacle?: string;
}

/** What all announced prefixes have in common. */
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
  readonly #touched = new Set<Cidr>();

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

  /** What is known of a prefix. */
  sourcesOf(prefix: Cidr): readonly PrefixSource[] {
    return [...this.#sources.get(prefix)?.values() ?? []];
  }

  /** Brings the list up to date. Returns the prefixes that changed. */
  update(): ReadonlySet<Cidr> {
    const changed = new Set<Cidr>();
    for (const prefix of this.#touched) {
      const before = this.#announced.get(prefix);
      const after = this.#announce(prefix);
      if (JSON.stringify(before) === JSON.stringify(after)) continue;
      if (after) this.#announced.set(prefix, after);
      else this.#announced.delete(prefix);
      changed.add(prefix);
    }
    this.#touched.clear();
    if (changed.size > 0) this.#sorted = this.#merged(changed);
    return changed;
  }

  #announce(prefix: Cidr): AnnouncedPrefix | undefined {
    const active = this.sourcesOf(prefix).filter(({ obstacle }) => obstacle === undefined);
    if (active.length === 0) return undefined;
    const kinds = new Set(active.map(({ kind }) => kind));
    return {
      prefix,
      to: [...new Set(active.flatMap(({ to }) => to))].sort(),
      kind: KINDS.find((kind) => kinds.has(kind))!,
      ...this.#attributes,
    };
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
    merged.push(...added.slice(next));
    return merged;
  }
}
