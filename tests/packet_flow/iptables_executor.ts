/**
 * Carries packets out over the text that iptables mode would apply.
 *
 * @module
 */
import { renderIptables } from "../../backends/iptables/render.ts";
import {
  defaultRenderOptions,
  type IptablesRenderOptions,
} from "../../backends/iptables/render_options.ts";
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { nodePortAddressesFor } from "../../lib/proxy/node_port_addresses.ts";
import { ADDRESSES } from "../support/address_plan.ts";
import { testNodeState } from "../support/builders.ts";
import { FakeIptables } from "../support/fake_iptables.ts";
import { type TracedTables, tracePacket } from "../support/packet_tracer/iptables_tracer.ts";
import type { PacketFlowCase, PacketFlowScenario, PacketOutcome } from "./packet_flow_case.ts";
import { planScenario } from "./plan_scenario.ts";
import { endpointText, isMasqueraded, tracedPacket, verdictOf } from "./traced_verdict.ts";

/** The settings of the rules for a scenario, on the node of the address plan. */
export function scenarioOptions(
  { settings = {} }: PacketFlowScenario,
  family: IpFamily,
): IptablesRenderOptions {
  const { nodePortAddresses = [] } = settings;
  return {
    ...defaultRenderOptions(family),
    nodePortAddresses: nodePortAddressesFor(family, nodePortAddresses, testNodeState()),
    nodeIp: ADDRESSES[family].node,
  };
}

/** The tables for a scenario. */
export function scenarioTables(scenario: PacketFlowScenario, family: IpFamily): TracedTables {
  const { batch } = renderIptables(
    planScenario(scenario, family),
    scenarioOptions(scenario, family),
  );
  const iptables = new FakeIptables();
  iptables.restore([...batch.text()].join(""));
  return { filter: iptables.table("filter"), nat: iptables.table("nat") };
}

/** What becomes of a packet. */
export function executeOnIptables(tables: TracedTables, packet: PacketFlowCase): PacketOutcome {
  const { family } = packet;
  const addresses = localAddresses(family);
  const traced = tracedPacket(packet);
  const outcomes = tracePacket(tables, traced, { addresses });
  const verdict = verdictOf(outcomes);
  return {
    verdict,
    masquerade: typeof verdict !== "string" && isMasqueraded(outcomes, traced.source),
    sticky: typeof verdict !== "string" && outcomes.every((outcome) =>
      outcome.lists.length > 0 &&
      tracePacket(tables, traced, { addresses, lists: new Set(outcome.lists) })
        .every((again) => endpointText(again) === endpointText(outcome))
    ),
    trace: outcomes.flatMap(({ path, verdict }) => [...path, `= ${verdict}`]),
  };
}

function localAddresses(family: IpFamily): readonly IpAddress[] {
  const { loopback, node, nodeSecond } = ADDRESSES[family];
  return [loopback, node, nodeSecond];
}
