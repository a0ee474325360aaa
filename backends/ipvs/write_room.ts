import type { ServiceKey } from "../../lib/proxy/service_port_name.ts";

/** The limits of one write for large Services. */
export interface WriteBounds {
  /** The limit of each Service. */
  readonly ofService: number;
  /** The limit of all Services together, in addition to their own limits. */
  readonly together: number;
}

/** No limits, for a write that has to be complete. */
export const NO_BOUNDS: WriteBounds = { ofService: Infinity, together: Infinity };

/**
 * Counts the lines of a write by Service. A large Service may have as many as others, plus the remaining
 * common limit, so that no other change waits for it.
 */
export class WriteRoom {
  readonly #ofService: number;
  readonly #taken = new Map<ServiceKey, number>();
  #together: number;

  constructor({ ofService, together }: WriteBounds) {
    this.#ofService = ofService;
    this.#together = together;
  }

  /** Whether a Service may have more lines in this write. */
  hasRoomFor(service: ServiceKey): boolean {
    return (this.#taken.get(service) ?? 0) < this.#ofService || this.#together > 0;
  }

  /** Counts lines of a Service, even beyond its limit. */
  take(service: ServiceKey, count = 1): void {
    const taken = this.#taken.get(service) ?? 0;
    this.#taken.set(service, taken + count);
    this.#together -= Math.max(0, taken + count - Math.max(taken, this.#ofService));
  }
}
