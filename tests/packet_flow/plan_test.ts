import { assert, assertEquals } from "@std/assert";
import { PACKET_FLOW_CASES } from "./cases.ts";
import { planScenario } from "./plan_scenario.ts";
import { runPacketFlowSuite } from "./suite.ts";
import { asUdp, inOtherFamily } from "./variants.ts";
import { cidrContains } from "../../lib/net/cidr.ts";
import { parsePort } from "../../lib/net/port.ts";
import type { FrontendRole, ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import { findHit } from "../../lib/proxy/explain_packet.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { assertNever, type Verdict } from "../../lib/proxy/verdict.ts";
import {
  type PacketFlowCase,
  type PacketOrigin,
  packetOrigin,
  type PacketOutcome,
} from "./packet_flow_case.ts";

/** A packet, its sender, and the facts about both. */
interface Arrival {
  readonly packet: PacketFlowCase;
  readonly origin: PacketOrigin;
  readonly fromPod: boolean;
  readonly fromNode: boolean;
}

/** Returns the outcome of a packet by a plan. */
function executeOnPlan(plan: ProxyPlan, packet: PacketFlowCase): PacketOutcome {
  const origin = packetOrigin(packet.from, packet.family);
  const arrival: Arrival = {
    packet,
    origin,
    fromPod: isFromPod(plan.shared.localTraffic, origin),
    fromNode: packet.from === "node",
  };
  const hit = findHit(plan, { ...packet, port: parsePort(packet.port) });
  if (hit === undefined) return { verdict: "UNCLAIMED", masquerade: false, sticky: false };
  const { service, frontend: { role } } = hit;
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

function externalVerdict(service: ServicePlan, role: FrontendRole, arrival: Arrival): Verdict {
  const verdict = arrival.fromPod || arrival.fromNode
    ? service.externalFromCluster
    : service.external;
  // A Service that refuses does so for every client: there is nothing to protect.
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
  return service.externalTrafficPolicy === "Cluster" || (fromNode && !fromPod);
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

for (
  const [name, cases] of [
    ["plan", PACKET_FLOW_CASES],
    ["plan, other family", inOtherFamily(PACKET_FLOW_CASES)],
    ["plan, UDP", asUdp(PACKET_FLOW_CASES)],
    ["plan, UDP, other family", inOtherFamily(asUdp(PACKET_FLOW_CASES))],
  ] as const
) {
  runPacketFlowSuite({
    name,
    cases,
    execute: (packet) => executeOnPlan(planScenario(packet.scenario, packet.family), packet),
  });
}

Deno.test("PACKET_FLOW_CASES names every row once", () => {
  const names = PACKET_FLOW_CASES.map(({ name }) => name);
  assertEquals(names.filter((name, index) => names.indexOf(name) !== index), []);
  assert(names.length >= 40);
});
