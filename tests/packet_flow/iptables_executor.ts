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
import { formatHostPort } from "../../lib/net/port.ts";
import { nodePortAddressesFor } from "../../lib/proxy/node_port_addresses.ts";
import { ADDRESSES } from "../support/address_plan.ts";
import { testNodeState } from "../support/builders.ts";
import { FakeIptables } from "../support/fake_iptables.ts";
import {
  type TracedPacket,
  type TracedTables,
  type TraceOutcome,
  tracePacket,
} from "../support/packet_tracer/iptables_tracer.ts";
import {
  type PacketFlowCase,
  type PacketFlowScenario,
  packetOrigin,
  type PacketOutcome,
  type PacketVerdict,
} from "./packet_flow_case.ts";
import { planScenario } from "./plan_scenario.ts";

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

function tracedPacket({ from, family, to, port, protocol }: PacketFlowCase): TracedPacket {
  const { address, interfaceName } = packetOrigin(from, family);
  const { loopback } = ADDRESSES[family];
  return {
    // The kernel takes the address itself as source for what stays on lo.
    source: from === "node" && to === loopback ? loopback : address,
    destination: to,
    port,
    protocol,
    ...(interfaceName !== undefined && { inInterface: interfaceName }),
  };
}

function verdictOf(outcomes: readonly TraceOutcome[]): PacketVerdict {
  const kinds = new Set(
    outcomes.map(({ endpoint, verdict }) =>
      verdict === "ACCEPT" ? endpoint ? "endpoint" : "UNCLAIMED" : verdict
    ),
  );
  const [kind] = kinds;
  if (kinds.size !== 1 || kind === undefined) {
    throw new Error(`Cannot tell what becomes of the packet: ${[...kinds].join(" or ")}`);
  }
  if (kind !== "endpoint") return kind;
  const fair = 1 / outcomes.length;
  for (const { probability } of outcomes) {
    if (Math.abs(probability - fair) > 1e-8) {
      throw new Error(`Cannot accept a chance of ${probability} among ${outcomes.length}`);
    }
  }
  return outcomes.map(endpointText).sort();
}

function endpointText({ endpoint }: TraceOutcome): string {
  return endpoint ? formatHostPort(endpoint.address, endpoint.port) : "";
}

/** An endpoint that gets its own packet sees the node; apart from it, chance decides nothing. */
function isMasqueraded(outcomes: readonly TraceOutcome[], source: IpAddress): boolean {
  const own = outcomes.filter(({ endpoint }) => endpoint?.address === source);
  if (own.some(({ masquerade }) => !masquerade)) {
    throw new Error(`Cannot accept that ${source} is sent its own packet as it is`);
  }
  const others = outcomes.filter((outcome) => !own.includes(outcome));
  if (new Set(others.map(({ masquerade }) => masquerade)).size > 1) {
    throw new Error("Cannot accept that chance decides whether the source is kept");
  }
  return outcomes.every(({ masquerade }) => masquerade);
}
