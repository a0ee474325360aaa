import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { type LoopPart, NO_PART } from "./endpoint_loops.ts";
import type { Forwarding } from "./forwarding.ts";
import type { ServiceAddress } from "./listeners.ts";
import { TcpAcceptor } from "./tcp/tcp_acceptor.ts";
import { TcpForwarder } from "./tcp/tcp_forwarder.ts";
import { UdpForwarder } from "./udp/udp_forwarder.ts";
import { UdpPort } from "./udp/udp_port.ts";

interface EntryState {
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
  const state: EntryState = { plan, served: plan, wanted: [], addresses: [], part: NO_PART };
  switch (protocol) {
    case "TCP":
      return { ...state, protocol, forwarder: new TcpForwarder(forwarding, plan) };
    case "UDP":
      return { ...state, protocol, forwarder: new UdpForwarder(forwarding, plan) };
    case "SCTP":
      return { ...state, protocol };
  }
}

/**
 * Opens a listening socket of a ServicePort and forwards; `undefined` for SCTP. Throws errors of
 * the network.
 */
export function openServiceSocket(
  forwarding: Forwarding,
  { place: { address: hostname, port }, entry, at }: {
    readonly place: Pick<ServiceAddress, "address" | "port">;
    readonly entry: ServiceEntry;
    readonly at: ServiceAddress;
  },
): TcpAcceptor | UdpPort | undefined {
  if (entry.protocol === "SCTP") return undefined;
  let opened: TcpAcceptor | UdpPort;
  if (entry.protocol === "TCP") {
    const listener = forwarding.network.listenTcp({ hostname, port });
    const target = { at, forwarder: entry.forwarder };
    opened = new TcpAcceptor(forwarding, { listener, target });
  } else {
    const socket = forwarding.network.listenUdp({ hostname, port });
    const target = { at, forwarder: entry.forwarder };
    opened = new UdpPort(forwarding, { socket, target });
  }
  opened.start();
  return opened;
}
