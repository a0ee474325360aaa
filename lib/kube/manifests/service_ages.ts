import { objectKey } from "../../api/kind.ts";
import type { Service } from "../../api/kinds/service.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { TimeSlice } from "../../os/time_slice.ts";
import { claimsOf } from "../../proxy/frontend_owners.ts";
import { servicePortsFromService } from "../../proxy/service_port.ts";
import type { Informer } from "../informer.ts";

/**
 * Gives the Services of manifests the creation time that an API server would, because the older of two
 * Services keeps an address that both claim. At the start that is the time of the file. A Service that
 * comes later is younger than all others, and so is one that claims what another one has: a change
 * never takes an address away from the Service that has it.
 */
export class ServiceAges {
  readonly #services: Informer<Service>;
  #latestMs = 0;
  /** The time that a newcomer has at least. */
  #leastMs = 0;
  #claiming: ReadonlySet<string> = new Set();

  constructor(services: Informer<Service>) {
    this.#services = services;
  }

  /** Prepares an update with these Services, which comes after all former ones. */
  async later(services: Iterable<Service>, slice: TimeSlice): Promise<void> {
    this.#leastMs = this.#latestMs + 1;
    const added = new Map<string, string[]>();
    for (const service of services) {
      const key = objectKey(service);
      const known = this.#services.get(key);
      if (known && (known.spec !== service.spec || known.status !== service.status)) {
        const had = new Set(claimsOfService(known));
        for (const claim of claimsOfService(service)) {
          if (!had.has(claim)) added.set(claim, [...added.get(claim) ?? [], key]);
        }
      }
      const pause = slice.pause();
      if (pause) await pause;
    }
    this.#claiming = added.size > 0 ? await this.#claimants(added, slice) : new Set();
  }

  /** The Services that are about to claim what another one claims already. */
  async #claimants(
    added: ReadonlyMap<string, readonly string[]>,
    slice: TimeSlice,
  ): Promise<ReadonlySet<string>> {
    const found = new Set<string>();
    for (const service of [...this.#services.values()]) {
      for (const claim of claimsOfService(service)) {
        for (const key of added.get(claim) ?? []) found.add(key);
      }
      const pause = slice.pause();
      if (pause) await pause;
    }
    return found;
  }

  /** Returns the Service with its creation time, and the known one if it is the same. */
  aged(service: Service, fileTimeMs: number): Service {
    const { metadata } = service;
    const known = this.#services.get(objectKey(service))?.metadata.creationTimestamp;
    let creationTimestamp = known;
    if (known === undefined || this.#claiming.has(objectKey(service))) {
      const stated = Date.parse(metadata.creationTimestamp ?? "");
      const ms = Math.max(this.#leastMs, Number.isNaN(stated) ? fileTimeMs : stated);
      this.#latestMs = Math.max(this.#latestMs, ms);
      creationTimestamp = new Date(ms).toISOString();
    }
    return { ...service, metadata: { ...metadata, creationTimestamp: creationTimestamp! } };
  }
}

function claimsOfService(service: Service): readonly string[] {
  return IP_FAMILIES.flatMap((family) =>
    servicePortsFromService(service, { family }).ports.flatMap((port) => claimsOf(port))
  );
}
