/**
 * Carries packets out over a plan alone: what every backend has to spell in its own language.
 *
 * @module
 */
import { cidrContains } from "../../lib/net/cidr.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { assertNever, type Verdict } from "../../lib/proxy/verdict.ts";
import {
  type PacketFlowCase,
  type PacketOrigin,
  packetOrigin,
  type PacketOutcome,
} from "./packet_flow_case.ts";

/** By what kind of address a packet came to a Service. */
type Role = "ClusterIP" | "ExternalIP" | "LoadBalancer" | "NodePort";

/** A packet, its sender, and what is known of both. */
interface Arrival {
  readonly packet: PacketFlowCase;
  readonly origin: PacketOrigin;
  readonly fromPod: boolean;
  readonly fromNode: boolean;
}

/** What a plan makes of a packet. */
export function executeOnPlan(plan: ProxyPlan, packet: PacketFlowCase): PacketOutcome {
  const origin = packetOrigin(packet.from, packet.family);
  const arrival: Arrival = {
    packet,
    origin,
    fromPod: isFromPod(plan.shared.localTraffic, origin),
    fromNode: packet.from === "node",
  };
  for (const service of plan.services.values()) {
    const role = roleOf(plan, service, packet);
    if (role === undefined) continue;
    const outcome = role === "ClusterIP"
      ? deliver(service.internal, service, {
        ...arrival,
        masquerade: masqueradesInternal(service, arrival),
      })
      : deliver(externalVerdict(service, role, arrival), service, {
        ...arrival,
        masquerade: masqueradesExternal(service, arrival),
      });
    return { ...outcome, trace: [`${role} of ${service.key}`, `from pod: ${arrival.fromPod}`] };
  }
  return { verdict: "UNCLAIMED", masquerade: false, sticky: false };
}

function roleOf(plan: ProxyPlan, service: ServicePlan, packet: PacketFlowCase): Role | undefined {
  const { to, port, protocol } = packet;
  if (service.protocol !== protocol) return undefined;
  const isNodeAddress = plan.shared.nodePortAddresses.includes(to);
  if (service.nodePort === port && isNodeAddress) return "NodePort";
  if (service.port !== port) return undefined;
  if (service.clusterIp === to) return "ClusterIP";
  if (service.externalIps.includes(to)) return "ExternalIP";
  return service.loadBalancerVips.includes(to) ? "LoadBalancer" : undefined;
}

function isFromPod(detector: LocalTrafficDetector, origin: PacketOrigin): boolean {
  switch (detector.kind) {
    case "byCidr":
      return cidrContains(detector.cidr, origin.address);
    case "byBridge":
      return origin.interfaceName === detector.interfaceName;
    case "byInterfacePrefix":
      return origin.interfaceName?.startsWith(detector.prefix) ?? false;
    case "none":
      return false;
    default:
      return assertNever(detector);
  }
}

function externalVerdict(service: ServicePlan, role: Role, arrival: Arrival): Verdict {
  const verdict = arrival.fromPod || arrival.fromNode
    ? service.externalFromCluster
    : service.external;
  // A Service that refuses does so to everybody: there is nothing to protect.
  if (role !== "LoadBalancer" || verdict.kind === "reject") return verdict;
  const admitted = service.sourceRanges === undefined ||
    service.sourceRanges.some((range) => cidrContains(range, arrival.origin.address));
  return admitted ? verdict : { kind: "drop" };
}

function masqueradesInternal(service: ServicePlan, { fromPod }: Arrival): boolean {
  if (service.masqueradeInternal === "off-cluster") return !fromPod;
  return service.masqueradeInternal === "all";
}

function masqueradesExternal(service: ServicePlan, { fromPod, fromNode }: Arrival): boolean {
  return service.masqueradeExternal === "all" || (fromNode && !fromPod);
}

function deliver(
  verdict: Verdict,
  service: ServicePlan,
  { origin, masquerade }: Arrival & { readonly masquerade: boolean },
): PacketOutcome {
  switch (verdict.kind) {
    case "reject":
      return { verdict: "REJECT", masquerade: false, sticky: false };
    case "drop":
      return { verdict: "DROP", masquerade: false, sticky: false };
    case "forward":
      return {
        verdict: verdict.endpoints.map(({ key }) => key),
        // An endpoint that reaches itself would see its own address and answer past the proxy.
        masquerade: masquerade ||
          verdict.endpoints.every(({ address }) => address === origin.address),
        sticky: service.affinityTimeoutSeconds !== undefined,
      };
    default:
      return assertNever(verdict);
  }
}
