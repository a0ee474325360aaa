/**
 * Carries packets out over the text that nftables mode would apply.
 *
 * @module
 */
import { TABLE } from "../../backends/nftables/base_chains.ts";
import { EXPRESSIONS } from "../../backends/nftables/expressions.ts";
import { renderNftables } from "../../backends/nftables/render.ts";
import {
  defaultRenderOptions,
  type NftablesRenderOptions,
} from "../../backends/nftables/render_options.ts";
import type { IpAddress, IpFamily } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import { nodePortAddressesFor } from "../../lib/proxy/node_port_addresses.ts";
import { ADDRESSES } from "../support/address_plan.ts";
import { testNodeState } from "../support/builders.ts";
import { FakeNft, type FakeNftTable } from "../support/fake_nft.ts";
import type { TracedPacket } from "../support/packet_tracer/iptables_tracer.ts";
import { type NftOutcome, traceNft } from "../support/packet_tracer/nft_tracer.ts";
import {
  type PacketFlowCase,
  type PacketFlowScenario,
  packetOrigin,
  type PacketOutcome,
  type PacketVerdict,
} from "./packet_flow_case.ts";
import { planScenario } from "./plan_scenario.ts";

/** The settings of the rules for a scenario, on the node of the address plan, with 127.0.0.1 asked for. */
export function nftScenarioOptions(
  { settings = {} }: PacketFlowScenario,
  family: IpFamily,
): NftablesRenderOptions {
  const { nodePortAddresses = [] } = settings;
  return {
    ...defaultRenderOptions(family),
    nodePortAddresses: nodePortAddressesFor(family, nodePortAddresses, testNodeState()),
    localhostNodePorts: family === "IPv4",
    nodeIp: ADDRESSES[family].node,
  };
}

/** The table for a scenario. */
export function nftScenarioTable(scenario: PacketFlowScenario, family: IpFamily): FakeNftTable {
  const { transaction } = renderNftables(
    planScenario(scenario, family),
    nftScenarioOptions(scenario, family),
  );
  const nft = new FakeNft();
  nft.run([...transaction.text()].join(""));
  return nft.table(`${EXPRESSIONS[family].table} ${TABLE}`);
}

/** What becomes of a packet. */
export function executeOnNft(table: FakeNftTable, packet: PacketFlowCase): PacketOutcome {
  const { loopback, node, nodeSecond } = ADDRESSES[packet.family];
  const addresses = [loopback, node, nodeSecond];
  const traced = tracedPacket(packet);
  const outcomes = traceNft(table, traced, { addresses });
  for (const { endpoint, mark, priority } of outcomes) {
    if (endpoint && (mark !== 0 || priority !== 0)) {
      throw new Error("Cannot accept what is left on the packet");
    }
  }
  const verdict = verdictOf(outcomes);
  const isForwarded = typeof verdict !== "string";
  return {
    verdict,
    masquerade: isForwarded && isMasqueraded(outcomes, traced.source),
    sticky: isForwarded && outcomes.every((outcome) =>
      outcome.affinity.size > 0 &&
      traceNft(table, traced, { addresses, affinity: outcome.affinity })
        .every((again) => endpointText(again) === endpointText(outcome))
    ),
    trace: outcomes.flatMap(({ path, verdict }) => [...path, `= ${verdict}`]),
  };
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

function verdictOf(outcomes: readonly NftOutcome[]): PacketVerdict {
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

function endpointText({ endpoint }: NftOutcome): string {
  return endpoint ? formatHostPort(endpoint.address, endpoint.port) : "";
}

/** An endpoint that gets its own packet sees the node; apart from it, chance decides nothing. */
function isMasqueraded(outcomes: readonly NftOutcome[], source: IpAddress): boolean {
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
