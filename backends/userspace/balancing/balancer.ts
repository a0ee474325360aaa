import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";

/** One request for an endpoint. */
export interface BalanceRequest {
  /** Address of the client, without its port. */
  readonly client: string;
  /** Milliseconds that only ever grow. */
  readonly now: number;
  /** Endpoints that could not be reached in this attempt. */
  readonly exclude?: ReadonlySet<EndpointKey>;
}

/** Chooses among the endpoints of one verdict. */
export interface Balancer {
  /** Adopts another list, sorted by key. */
  replace(endpoints: readonly Endpoint[]): void;
  /**
   * The endpoint for a new connection, which loads it from now on; `undefined` if there is none, or none
   * that is not excluded.
   */
  next(request: BalanceRequest): Endpoint | undefined;
}
