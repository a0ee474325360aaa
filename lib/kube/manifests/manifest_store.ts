/**
 * Passes the objects of all manifest files to the informers, if they really changed.
 *
 * @module
 */
import { type KindSpec, type KubeObject, objectKey } from "../../api/kind.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { SERVICE, type Service } from "../../api/kinds/service.ts";
import { SERVICE_NAME_LABEL } from "../../api/labels.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { claimsOf } from "../../proxy/frontend_owners.ts";
import { servicePortsFromService } from "../../proxy/service_port.ts";
import type { Informer } from "../informer.ts";
import { type InformerSet, isSelected, objectId, type Subscription } from "../informer_set.ts";
import type { FileObjects, PlacedObject } from "./manifest_file.ts";
import type { ManifestObject, ManifestObjectId } from "./manifest_objects.ts";
import type { ObjectPlace } from "./manifest_problem.ts";

/** The result of an update. */
export interface StoreChanges {
  added: number;
  updated: number;
  deleted: number;
}

/** An object that two files contain; the other file is used. */
export interface ShadowedObject {
  readonly id: ManifestObjectId;
  readonly line: number;
  readonly usedFile: string;
  readonly usedLine: number;
  /** Why the other one is used; its file is the subject. */
  readonly reason: "comes first by name" | "is the older file" | "was in use before";
}

/**
 * Records the file of each object. If several contain it, the one that is in use stays; at the start,
 * and after that one has gone, it is the oldest file, then the first by path.
 */
export class ManifestStore {
  readonly #files = new Map<string, FileObjects>();
  readonly #owners = new Map<ManifestObjectId, string>();
  /** Services whose endpoints were read while files were unread. */
  readonly #withEndpoints = new Set<string>();
  /** Unpublished objects that changed while files were unread. */
  readonly #withheld = new Set<ManifestObjectId>();
  /** Further files that contain an object. */
  readonly #shadows = new Map<ManifestObjectId, Set<string>>();
  /** Objects whose file may still change, because the update that read it is running. */
  readonly #undecided = new Set<ManifestObjectId>();
  #knownAges: ObjectAges | undefined;
  /** Whether all files have been read once. */
  #isSynced = false;

  constructor(private readonly clock: Clock, private readonly informers: InformerSet) {}

  /** Absent if no Services are followed. Controllers may subscribe after this store is created. */
  get #ages(): ObjectAges | undefined {
    const isFollowed = () => [...this.informers].some(({ spec }) => spec === SERVICE as KindSpec);
    if (!this.#knownAges && isFollowed()) this.#knownAges = new ObjectAges(this.informers);
    return this.#knownAges;
  }

  /** Returns the objects of a file, used or not. */
  objectsOf(path: string): FileObjects {
    return this.#files.get(path) ?? new Map();
  }

  /** Returns the file and line of an object that is in use. */
  placeOf(id: ManifestObjectId): ObjectPlace | undefined {
    const file = this.#owners.get(id);
    const line = file === undefined ? undefined : this.objectsOf(file).get(id)?.line;
    return file === undefined || line === undefined ? undefined : { file, line };
  }

  /** Returns the unused duplicates, by path of their file. */
  shadowed(): ReadonlyMap<string, readonly ShadowedObject[]> {
    const byFile = new Map<string, ShadowedObject[]>();
    for (const [id, files] of this.#shadows) {
      const usedFile = this.#owners.get(id)!;
      const used = this.objectsOf(usedFile).get(id);
      for (const file of files) {
        const placed = this.objectsOf(file).get(id);
        // An update is running and has not finished this file.
        if (placed === undefined || used === undefined) continue;
        const isFirst = isBefore([used.fileTimeMs, usedFile], [placed.fileTimeMs, file]);
        const reason = !isFirst
          ? "was in use before"
          : used.fileTimeMs === placed.fileTimeMs
          ? "comes first by name"
          : "is the older file";
        const list = byFile.get(file) ?? [];
        list.push({ id, line: placed.line, usedFile, usedLine: used.line, reason });
        byFile.set(file, list);
      }
    }
    return byFile;
  }

  /** Marks every informer as synced. From now on, what is in use keeps its place. */
  markSynced(): void {
    this.#isSynced = true;
    this.#undecided.clear();
    for (const { informer } of this.informers) informer.markSynced();
  }

  /**
   * Applies the new content of files at once. Empty content means that the file was deleted. While more
   * files are unread (`isPartial`), nothing is deleted, and no Service is added before some of its
   * endpoints.
   */
  async update(
    files: ReadonlyMap<string, FileObjects>,
    { isPartial = false }: { readonly isPartial?: boolean } = {},
  ): Promise<StoreChanges> {
    const slice = new TimeSlice(this.clock);
    const touched = new Set(this.#withheld);
    this.#withheld.clear();
    for (const [path, objects] of files) {
      for (const id of this.objectsOf(path).keys()) {
        touched.add(id);
        if (!objects.has(id)) this.#release(id, path);
        const pause = slice.pause();
        if (pause) await pause;
      }
      for (const [id, placed] of objects) {
        const { entry } = placed;
        touched.add(id);
        this.#claim(id, path, placed);
        if (isPartial) this.#noteEndpoints(entry);
        const pause = slice.pause();
        if (pause) await pause;
      }
      if (objects.size > 0) this.#files.set(path, objects);
      else this.#files.delete(path);
    }
    if (this.#isSynced) this.#undecided.clear();
    if (!isPartial) this.#withEndpoints.clear();
    return await this.#publish(touched, { slice, isPartial });
  }

  /**
   * Services come after endpoints, because a sync in between would refuse their clients. Deletions
   * come last, as after a list of an API server, so that a moved object is never missing; they
   * begin with Services.
   */
  async #publish(
    touched: Set<ManifestObjectId>,
    { slice, isPartial }: { readonly slice: TimeSlice; readonly isPartial: boolean },
  ): Promise<StoreChanges> {
    const changes: StoreChanges = { added: 0, updated: 0, deleted: 0 };
    const gone: ManifestObjectId[] = [];
    const renewed = this.#isSynced && await this.#ages?.later(this.#servicesOf(touched), slice);
    for (const service of renewed || []) touched.add(objectId(SERVICE, service));
    for (const id of servicesLast(touched)) {
      const owner = this.#owners.get(id);
      if (isPartial && (owner === undefined || this.#lacksEndpoints(id))) this.#withheld.add(id);
      else if (owner === undefined) gone.push(id);
      else this.#upsert(this.#files.get(owner)!.get(id)!, changes);
      const pause = slice.pause();
      if (pause) await pause;
    }
    for (const id of servicesLast(gone.reverse()).reverse()) {
      this.#delete(id, changes);
      const pause = slice.pause();
      if (pause) await pause;
    }
    return changes;
  }

  #noteEndpoints({ spec: { kind }, object }: ManifestObject): void {
    const { namespace = "", name, labels } = object.metadata;
    const service = kind === "EndpointSlice" ? labels?.[SERVICE_NAME_LABEL] : name;
    const isNamed = kind === "EndpointSlice" || kind === "Endpoints";
    if (isNamed && service !== undefined) this.#withEndpoints.add(`${namespace}/${service}`);
  }

  /** Returns whether no endpoints of a Service have been read: it would refuse its clients. */
  #lacksEndpoints(id: ManifestObjectId): boolean {
    const [kind, key = ""] = id.split(" ");
    return kind === "Service" && !this.#withEndpoints.has(key);
  }

  *#servicesOf(ids: Iterable<ManifestObjectId>): Generator<Service> {
    for (const id of ids) {
      const { entry } = this.#files.get(this.#owners.get(id) ?? "")?.get(id) ?? {};
      const service = entry && serviceOf(entry);
      if (service) yield service;
    }
  }

  #upsert({ entry, fileTimeMs }: PlacedObject, changes: StoreChanges): void {
    const { spec } = entry;
    const known = this.informers.of(spec).get(objectKey(entry.object));
    const object: KubeObject = this.#ages?.aged(entry, known, fileTimeMs) ?? entry.object;
    const outcomes = new Set<"added" | "updated">();
    for (const { informer, options } of this.#subscriptionsTo(spec.kind)) {
      const previous = informer.get(objectKey(object));
      if (!isSelected(object, options)) informer.delete(objectKey(object));
      else if (!previous || previous !== object && !deepEqual(previous, object)) {
        informer.upsert(object);
        outcomes.add(previous ? "updated" : "added");
      }
    }
    for (const outcome of outcomes) changes[outcome]++;
  }

  #delete(id: ManifestObjectId, changes: StoreChanges): void {
    const [kind, key = ""] = id.split(" ");
    const holders = this.#subscriptionsTo(kind).filter(({ informer }) => informer.get(key));
    for (const { informer } of holders) informer.delete(key);
    if (holders.length > 0) changes.deleted++;
  }

  #subscriptionsTo(kind: string | undefined): readonly Subscription[] {
    return [...this.informers].filter(({ spec }) => spec.kind === kind);
  }

  #claim(id: ManifestObjectId, path: string, placed: PlacedObject): void {
    const owner = this.#owners.get(id);
    if (owner === path) return;
    if (owner === undefined) {
      this.#owners.set(id, path);
      this.#undecided.add(id);
      return;
    }
    const used = this.#files.get(owner)?.get(id);
    const isFirst = this.#undecided.has(id) && used !== undefined &&
      isBefore([placed.fileTimeMs, path], [used.fileTimeMs, owner]);
    const [first, second] = isFirst ? [path, owner] : [owner, path];
    const shadows = this.#shadows.get(id) ?? new Set();
    this.#owners.set(id, first);
    shadows.delete(first);
    shadows.add(second);
    this.#shadows.set(id, shadows);
  }

  #release(id: ManifestObjectId, path: string): void {
    const shadows = this.#shadows.get(id);
    if (this.#owners.get(id) !== path) {
      shadows?.delete(path);
    } else if (!shadows) {
      this.#owners.delete(id);
    } else {
      const [[, next] = []] = [...shadows]
        .map((other) => [this.objectsOf(other).get(id)?.fileTimeMs ?? Infinity, other] as const)
        .sort((left, right) => isBefore(left, right) ? -1 : 1);
      this.#owners.set(id, next!);
      shadows.delete(next!);
    }
    if (shadows?.size === 0) this.#shadows.delete(id);
  }
}

/** Whether a file comes before another one: the older one, then the first by path. */
function isBefore(
  [time, path]: readonly [fileTimeMs: number, path: string],
  [otherTime, otherPath]: readonly [fileTimeMs: number, path: string],
): boolean {
  return time < otherTime || time === otherTime && path < otherPath;
}

/** Returns the Service of an entry; `undefined` if it is of another kind. */
function serviceOf({ spec, object }: ManifestObject): Service | undefined {
  return spec === SERVICE as KindSpec ? object as Service : undefined;
}

function servicesLast(ids: Iterable<ManifestObjectId>): ManifestObjectId[] {
  const all = [...ids];
  const isService = (id: ManifestObjectId) => id.startsWith("Service ");
  return [...all.filter((id) => !isService(id)), ...all.filter(isService)];
}

/** Kinds whose objects precede younger ones: at addresses, and in the budget of a namespace. */
export const AGED = [SERVICE, NETWORK_POLICY] as readonly KindSpec[];

/** Times of an API server have whole seconds; texts of both kinds are compared. */
const STEP_MS = 1_000;
/** A file may state any time. Texts of later years do not sort, and even later ones do not exist. */
const LATEST_MS = Date.UTC(9000);

/**
 * Gives objects of manifests the creation time that an API server would: the older of two Services keeps
 * an address that both claim, and older policies count first. At the start that is the time of the file.
 * An object that comes later is younger than all others, and so is a Service that claims what another one
 * has: a change never takes an address away from the Service that has it.
 */
export class ObjectAges {
  readonly #services: Informer<Service>;
  #latestMs = 0;
  /** The time that a newcomer has at least. */
  #leastMs = 0;
  /** The new times of known Services. */
  #renewed: ReadonlyMap<KubeObject, number> = new Map();

  /** Takes the objects in use. Services are followed. */
  constructor(informers: InformerSet) {
    this.#services = informers.of(SERVICE);
    for (const spec of AGED) {
      if (!informers.kinds.has(spec.kind)) continue;
      for (const object of informers.of(spec).values()) {
        this.#latestMs = Math.max(this.#latestMs, Date.parse(ageOf(object)) || 0);
      }
    }
  }

  /**
   * Prepares an update with these Services, which comes after all former ones. Returns the known Services
   * that get another time: those of the update that claim what another one has, and those that wait for an
   * address of these, which would get it otherwise.
   */
  async later(services: Iterable<Service>, slice: TimeSlice): Promise<Iterable<KubeObject>> {
    const added = new Map<string, Service[]>();
    for (const service of services) {
      const known = this.#services.get(objectKey(service));
      // An API server leaves the age of a Service as it is, and has given it a version. A file that is
      // read again has new objects, unless they are equal.
      const mayRenew = known !== undefined && known.metadata.resourceVersion === undefined;
      if (mayRenew && known.spec !== service.spec) {
        const had = new Set(claimsOfService(known));
        for (const claim of claimsOfService(service)) {
          if (!had.has(claim)) added.getOrInsertComputed(claim, () => []).push(known);
        }
      }
      const pause = slice.pause();
      if (pause) await pause;
    }
    this.#renewed = added.size > 0 ? await this.#renew(added, slice) : new Map();
    this.#leastMs = this.#latestMs + STEP_MS;
    return this.#renewed.keys();
  }

  async #renew(
    added: ReadonlyMap<string, readonly Service[]>,
    slice: TimeSlice,
  ): Promise<ReadonlyMap<KubeObject, number>> {
    const claims = new Map<Service, readonly string[]>();
    const sharers = new Map<string, Service[]>();
    for (const service of [...this.#services.values()]) {
      const own = claimsOfService(service);
      claims.set(service, own);
      for (const claim of own) sharers.getOrInsertComputed(claim, () => []).push(service);
      const pause = slice.pause();
      if (pause) await pause;
    }
    const claiming = new Set(
      [...added].flatMap(([claim, known]) => sharers.has(claim) ? known : []),
    );
    const renewed = new Map<KubeObject, number>();
    if (claiming.size === 0) return renewed;
    const ofRenewed = new Set<string>();
    const byAge = Map.groupBy(claims.keys(), ageOf);
    for (const age of [...byAge.keys()].sort()) {
      const found = new Set(
        byAge.get(age)!.filter((service) =>
          claiming.has(service) || claims.get(service)!.some((claim) => ofRenewed.has(claim))
        ),
      );
      // Services of one age keep one: their names decide as before.
      if (found.size > 0) this.#latestMs += STEP_MS;
      for (const service of found) {
        renewed.set(service, this.#latestMs);
        for (const claim of claims.get(service)!) {
          if (ofRenewed.has(claim)) continue;
          ofRenewed.add(claim);
          for (const other of sharers.get(claim)!) if (ageOf(other) === age) found.add(other);
        }
      }
      const pause = slice.pause();
      if (pause) await pause;
    }
    return renewed;
  }

  /** Returns an object with its creation time, if its kind has an age. `known` is its former version. */
  aged(
    { spec, object }: ManifestObject,
    known: KubeObject | undefined,
    fileTimeMs: number,
  ): KubeObject {
    if (!AGED.includes(spec)) return object;
    const { metadata } = object;
    const ms = known ? this.#renewed.get(known) : this.#timeOf(object, fileTimeMs);
    const creationTimestamp = ms === undefined
      ? known!.metadata.creationTimestamp!
      : new Date(ms).toISOString();
    return { ...object, metadata: { ...metadata, creationTimestamp } };
  }

  #timeOf({ metadata }: KubeObject, fileTimeMs: number): number {
    const stated = Date.parse(metadata.creationTimestamp ?? "");
    const ms = Math.min(Number.isNaN(stated) ? fileTimeMs : stated, LATEST_MS);
    this.#latestMs = Math.max(this.#latestMs, this.#leastMs, ms);
    return Math.max(this.#leastMs, ms);
  }
}

function claimsOfService(service: Service): readonly string[] {
  return IP_FAMILIES.flatMap((family) =>
    servicePortsFromService(service, { family }).ports.flatMap((port) => claimsOf(port))
  );
}

function ageOf({ metadata }: KubeObject): string {
  return metadata.creationTimestamp ?? "";
}
