/**
 * Carries packets out over the text that ipvs mode would apply.
 *
 * @module
 */
import { readRenderedKernel, type RenderedKernel } from "../support/walk/rendered_kernel.ts";
import { renderText } from "../../backends/ipvs/render.ts";
import { defaultIpvsOptions, type IpvsRenderOptions } from "../../backends/ipvs/render_service.ts";
import { walkIptables } from "../support/walk/iptables_walk.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import type { PacketFlowCase, PacketFlowScenario, PacketOutcome } from "./packet_flow_case.ts";
import { planScenario } from "./plan_scenario.ts";
import { isMasqueraded, tracedPacket, verdictOf } from "./traced_verdict.ts";

/** The settings of the ipvs mode for a scenario, on the node of the address plan. */
export function ipvsScenarioOptions(family: IpFamily): IpvsRenderOptions {
  const { node, nodeSecond } = ADDRESSES[family];
  return {
    ...defaultIpvsOptions(family),
    nodeAddresses: new Set([node, nodeSecond]),
  };
}

/** The kernel for a scenario. */
export function ipvsScenarioKernel(scenario: PacketFlowScenario, family: IpFamily): RenderedKernel {
  const plan = planScenario(scenario, family, { mode: "ipvs" });
  return readRenderedKernel(renderText(plan, ipvsScenarioOptions(family)));
}

/** Returns the outcome of a packet. */
export function executeOnIpvs(
  { rules, ipvs }: RenderedKernel,
  packet: PacketFlowCase,
): PacketOutcome {
  const { loopback, node, nodeSecond } = ADDRESSES[packet.family];
  const traced = tracedPacket(packet);
  // For an address that is bound here, the kernel chooses that address itself as source.
  const isOwn = packet.from === "node" && ipvs.address(packet.to) !== undefined;
  const source = isOwn ? packet.to : traced.source;
  const outcomes = walkIptables(rules, { ...traced, source }, {
    isLocal: (address) => [loopback, node, nodeSecond].includes(address),
    isListed: () => false,
    ipvs,
  });
  const verdict = verdictOf(outcomes);
  const isForwarded = typeof verdict !== "string";
  return {
    verdict,
    masquerade: isForwarded && isMasqueraded(outcomes, source),
    sticky: isForwarded &&
      outcomes.every(({ path }) =>
        path.some(({ object, text }) => object === "virtual server" && / -p \d+/.test(text))
      ),
    trace: outcomes.flatMap(({ path, verdict }) => [
      ...path.map(({ name, text }) => `${name}: ${text}`),
      `= ${verdict}`,
    ]),
  };
}
