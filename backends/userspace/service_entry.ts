import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { type LoopPart, NO_PART } from "./endpoint_loops.ts";
import type { Forwarders, ServiceForwarder } from "./forwarders.ts";
import type { ServiceAddress } from "./listeners.ts";

/** A ServicePort with its forwarder. */
export interface ServiceEntry {
  /** As planned. */
  plan: ServicePlan;
  /** As forwarded: without the endpoints that lead back to this process. */
  served: ServicePlan;
  /** Every address of the plan, each in use in the address book. */
  wanted: readonly ServiceAddress[];
  /** The addresses of its sockets: open ones have an endpoint. */
  addresses: readonly ServiceAddress[];
  /** Its part of the {@linkcode EndpointLoops}. */
  part: LoopPart;
  /** `undefined` for SCTP. */
  readonly forwarder: ServiceForwarder | undefined;
}

/** An entry that holds no addresses yet. */
export function createServiceEntry(forwarders: Forwarders, plan: ServicePlan): ServiceEntry {
  const { protocol } = plan;
  const forwarder = protocol === "SCTP" ? undefined : forwarders.create({ ...plan, protocol });
  return { plan, served: plan, wanted: [], addresses: [], part: NO_PART, forwarder };
}
