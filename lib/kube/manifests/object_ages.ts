import { type KindSpec, type KubeObject, objectKey } from "../../api/kind.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { SERVICE, type Service } from "../../api/kinds/service.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { TimeSlice } from "../../os/time_slice.ts";
import { claimsOf } from "../../proxy/frontend_owners.ts";
import { servicePortsFromService } from "../../proxy/service_port.ts";
import type { Informer } from "../informer.ts";
import type { InformerSet } from "../informer_set.ts";
import type { ManifestObject } from "./manifest_object.ts";

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
