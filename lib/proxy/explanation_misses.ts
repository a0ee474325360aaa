/**
 * Describes near misses in text.
 *
 * @module
 */
import { formatHostPort } from "../net/port.ts";
import type { NearMiss, PacketExplanation, UnservedReason } from "./packet_explanation.ts";
import type { SharedPlan } from "./proxy_plan.ts";
import { assertNever } from "./verdict.ts";

const UNSERVED: Readonly<Record<UnservedReason, string>> = {
  ExternalName: "it is an ExternalName",
  headless: "it is headless",
  "other proxy": "its label service.kubernetes.io/service-proxy-name gives it to another proxy",
  "external IP":
    "as external IP, which is not allowed here (feature gate AllowServiceExternalIPs) " +
    "or is not on this port",
  "ipMode Proxy": "as load balancer address of ipMode Proxy, which belongs to the load balancer",
  "no usable port": "it has no port that can be used",
};

/** Describes one near miss. */
export function missItem(
  { kind, service, address, port, protocol, reason }: NearMiss,
  { packet, shared }: {
    readonly packet: PacketExplanation["packet"];
    readonly shared: Pick<SharedPlan, "nodePortAddresses">;
  },
): string {
  const name = kind === "unserved" ? service : service.slice(0, service.lastIndexOf("/"));
  switch (kind) {
    case "endpoint":
      return `${
        formatHostPort(packet.to, packet.port)
      } is an endpoint of ${name} itself: what is ` +
        "sent straight to a pod passes by every Service";
    case "other-port":
      return `${name} has this address, on port ${port}/${protocol}`;
    case "target-port":
      return `${name} has this address, on port ${port}/${protocol}; ${packet.port} is the port of ` +
        "its endpoints";
    case "node-port": {
      const served = shared.nodePortAddresses.slice(0, 4).join(", ") || "no address";
      return `${packet.port}/${protocol} is the node port of ${name}; node ports are on ${served}`;
    }
    case "other-address":
      return `${name} has port ${port}/${protocol} on ${address}`;
    case "unserved":
      return `${name} has this address and is not served: ${UNSERVED[reason ?? "no usable port"]}`;
    default:
      return assertNever(kind);
  }
}
