import type { ServiceKey } from "../../lib/proxy/service_port_name.ts";

/** The limits of one write for large Services. */
export interface WriteBounds {
  /** Of each Service. */
  readonly ofService: number;
  /** Of all Services together, beyond that. */
  readonly together: number;
}

/** For a write that has to be complete. */
export const NO_BOUNDS: WriteBounds = { ofService: Infinity, together: Infinity };

/**
 * Counts what a write has for each Service. A large Service gets the same as others and what remains
 * of the common part, so that no change waits until all of it is written.
 */
export class WriteRoom {
  readonly #ofService: number;
  readonly #taken = new Map<ServiceKey, number>();
  #together: number;

  constructor({ ofService, together }: WriteBounds) {
    this.#ofService = ofService;
    this.#together = together;
  }

  /** Whether a Service may have more in this write. */
  hasRoomFor(service: ServiceKey): boolean {
    return (this.#taken.get(service) ?? 0) < this.#ofService || this.#together > 0;
  }

  /** Counts what a Service gets, whether there is room or not. */
  take(service: ServiceKey, count = 1): void {
    const taken = this.#taken.get(service) ?? 0;
    this.#taken.set(service, taken + count);
    this.#together -= Math.max(0, taken + count - Math.max(taken, this.#ofService));
  }
}
