/**
 * One ServicePort as the userspace backend holds it.
 *
 * @module
 */
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { Forwarding } from "./forwarding.ts";
import type { ServiceAddress } from "./listeners.ts";
import { TcpForwarder } from "./tcp/tcp_forwarder.ts";
import { UdpForwarder } from "./udp/udp_forwarder.ts";

interface EntryState {
  /** As last synced. */
  plan: ServicePlan;
  addresses: readonly ServiceAddress[];
}

/** A ServicePort with its forwarder, by protocol; SCTP has none. */
export type ServiceEntry =
  & EntryState
  & (
    | { readonly protocol: "TCP"; readonly forwarder: TcpForwarder }
    | { readonly protocol: "UDP"; readonly forwarder: UdpForwarder }
    | { readonly protocol: "SCTP"; readonly forwarder?: undefined }
  );

/** An entry that holds no addresses yet. */
export function createServiceEntry(forwarding: Forwarding, plan: ServicePlan): ServiceEntry {
  const { protocol } = plan;
  switch (protocol) {
    case "TCP":
      return { protocol, forwarder: new TcpForwarder(forwarding, plan), plan, addresses: [] };
    case "UDP":
      return { protocol, forwarder: new UdpForwarder(forwarding, plan), plan, addresses: [] };
    case "SCTP":
      return { protocol, plan, addresses: [] };
  }
}
