/** Carries packets out over the text that nftables mode would apply. */
import { walkNft } from "../support/walk/nft_walk.ts";
import { EXPRESSIONS, TABLE } from "../../backends/nftables/containers.ts";
import { renderNftables } from "../../backends/nftables/render.ts";
import type { NftablesRenderOptions } from "../../backends/nftables/render_options.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { nodePortAddressesFor } from "../../lib/proxy/node_state.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { testNodeState } from "../support/builders/builders.ts";
import { defaultRenderOptions } from "../support/builders/nftables_render_options.ts";
import { FakeNft, type FakeNftTable } from "../support/fakes/fake_nft.ts";
import type { PacketFlowCase, PacketFlowScenario, PacketOutcome } from "./packet_flow_case.ts";
import { planScenario } from "./plan_scenario.ts";
import { endpointText, isMasqueraded, tracedPacket, verdictOf } from "./traced_verdict.ts";

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

/** Returns the outcome of a packet. */
export function executeOnNft(table: FakeNftTable, packet: PacketFlowCase): PacketOutcome {
  const { loopback, node, nodeSecond } = ADDRESSES[packet.family];
  const traced = tracedPacket(packet);
  const walk = (affinity: ReadonlyMap<string, string>) =>
    walkNft(table, traced, {
      isLocal: (address) => [loopback, node, nodeSecond].includes(address),
      affinity,
    });
  const outcomes = walk(new Map());
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
      walk(outcome.affinity).every((again) => endpointText(again) === endpointText(outcome))
    ),
    trace: outcomes.flatMap(({ path, verdict }) => [
      ...path.map(({ object, name, text }) => `${object} ${name}: ${text}`),
      `= ${verdict}`,
    ]),
  };
}
