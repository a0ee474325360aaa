/** The form of a row of the packet-flow table: objects, a packet, and its expected outcome. */
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Endpoints } from "../../lib/api/kinds/endpoints.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import type { Protocol } from "../../lib/net/port.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";

/**
 * The sender of a packet. `localPod` is the first pod of this node, mostly an endpoint; the clients
 * never are.
 */
export type PacketSource =
  | "node"
  | "localPod"
  | "localPodClient"
  | "remotePodClient"
  | "client"
  | "blockedClient";

/** The address of a source, and the interface by which its packets reach this node, if any. */
export interface PacketOrigin {
  readonly address: IpAddress;
  readonly interfaceName?: string;
}

/** The objects and settings that several packets share. */
export interface PacketFlowScenario {
  readonly name: string;
  readonly services: readonly Service[];
  readonly slices?: readonly EndpointSlice[];
  readonly endpoints?: readonly Endpoints[];
  readonly settings?: PacketFlowSettings;
}

/** The part of the proxy's configuration that affects the meaning of a Service. */
export interface PacketFlowSettings {
  /** @default {byCidr, the pods of the address plan} */
  readonly localTraffic?: LocalTrafficDetector;
  /** @default {false} */
  readonly masqueradeAll?: boolean;
  /** Entries of `nodePortAddresses`. @default {none: all addresses of the node} */
  readonly nodePortAddresses?: readonly string[];
  /** @default {true} */
  readonly allowExternalIps?: boolean;
}

/**
 * The outcome of a packet: one of these endpoints (`ip:port`, sorted) receives it, it is refused,
 * or it is dropped silently. `UNCLAIMED` = no Service has this address and port: a data plane may
 * refuse it or leave it to the host, but never forwards it.
 */
export type PacketVerdict = readonly string[] | "REJECT" | "DROP" | "UNCLAIMED";

/** One row. */
export interface PacketFlowCase {
  /** Scenario, source and destination: the name of the test, and of a skip. */
  readonly name: string;
  readonly scenario: PacketFlowScenario;
  readonly family: IpFamily;
  readonly from: PacketSource;
  readonly to: IpAddress;
  readonly port: number;
  readonly protocol: Protocol;
  readonly verdict: PacketVerdict;
  /** Whether the endpoint sees an address of the node in place of the sender's. */
  readonly masquerade: boolean;
  /** Whether all further packets of the sender go to the same endpoint. */
  readonly sticky: boolean;
}

/** The observation of an executor. */
export interface PacketOutcome {
  readonly verdict: PacketVerdict;
  readonly masquerade: boolean;
  readonly sticky: boolean;
  /** The way that the packet took, for the message of a failure. */
  readonly trace?: readonly string[];
}

/** Returns the origin of the packets of a source. */
export function packetOrigin(source: PacketSource, family: IpFamily): PacketOrigin {
  const { localPods: [localPod], ...plan } = ADDRESSES[family];
  if (source === "node") return { address: plan.node };
  const address = source === "localPod" ? localPod : plan[source];
  return { address, interfaceName: source.startsWith("localPod") ? "cni0" : "eth0" };
}
