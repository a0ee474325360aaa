import { type KindSpec, type KubeObject, objectKey } from "../../api/kind.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { SERVICE, type Service } from "../../api/kinds/service.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { TimeSlice } from "../../os/time_slice.ts";
import { claimsOf } from "../../proxy/frontend_owners.ts";
import { servicePortsFromService } from "../../proxy/service_port.ts";
import type { Informer } from "../informer.ts";
import type { ManifestObject } from "./manifest_object.ts";

/** Kinds whose objects precede younger ones: at addresses, and in the budget of a namespace. */
const AGED = [SERVICE, NETWORK_POLICY] as readonly KindSpec[];

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
  /** Known Services whose next version claims what another Service has. */
  #claiming: ReadonlySet<KubeObject> = new Set();

  constructor(services: Informer<Service>) {
    this.#services = services;
  }

  /** Prepares an update with these Services, which comes after all former ones. */
  async later(services: Iterable<Service>, slice: TimeSlice): Promise<void> {
    this.#leastMs = this.#latestMs + 1;
    const added = new Map<string, Service[]>();
    for (const service of services) {
      const known = this.#services.get(objectKey(service));
      if (known && (known.spec !== service.spec || known.status !== service.status)) {
        const had = new Set(claimsOfService(known));
        for (const claim of claimsOfService(service)) {
          if (!had.has(claim)) added.set(claim, [...added.get(claim) ?? [], known]);
        }
      }
      const pause = slice.pause();
      if (pause) await pause;
    }
    this.#claiming = added.size > 0 ? await this.#claimants(added, slice) : new Set();
  }

  async #claimants(
    added: ReadonlyMap<string, readonly Service[]>,
    slice: TimeSlice,
  ): Promise<ReadonlySet<Service>> {
    const found = new Set<Service>();
    for (const service of [...this.#services.values()]) {
      for (const claim of claimsOfService(service)) {
        for (const known of added.get(claim) ?? []) found.add(known);
      }
      const pause = slice.pause();
      if (pause) await pause;
    }
    return found;
  }

  /** Returns an object with its creation time, if its kind has an age. `known` is its former version. */
  aged(
    { spec, object }: ManifestObject,
    known: KubeObject | undefined,
    fileTimeMs: number,
  ): KubeObject {
    if (!AGED.includes(spec)) return object;
    const { metadata } = object;
    let creationTimestamp = known?.metadata.creationTimestamp;
    if (known === undefined || this.#claiming.has(known)) {
      const stated = Date.parse(metadata.creationTimestamp ?? "");
      const ms = Math.max(this.#leastMs, Number.isNaN(stated) ? fileTimeMs : stated);
      this.#latestMs = Math.max(this.#latestMs, ms);
      creationTimestamp = new Date(ms).toISOString();
    }
    return { ...object, metadata: { ...metadata, creationTimestamp: creationTimestamp! } };
  }
}

function claimsOfService(service: Service): readonly string[] {
  return IP_FAMILIES.flatMap((family) =>
    servicePortsFromService(service, { family }).ports.flatMap((port) => claimsOf(port))
  );
}
