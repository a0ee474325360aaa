/** Carries packets out over the text that iptables mode would apply. */
import { renderIptables } from "../../backends/iptables/render.ts";
import {
  allowsRanges,
  type IptablesRenderOptions,
  renderOptionsOf,
} from "../../backends/iptables/render_options.ts";
import { type RuleSource, type WalkedHost, walkIptables } from "../support/walk/iptables_walk.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { defaultRenderOptions } from "../support/builders/iptables_render_options.ts";
import { FakeIptables } from "../support/fakes/fake_iptables.ts";
import type { PacketFlowCase, PacketFlowScenario, PacketOutcome } from "./packet_flow_case.ts";
import { planScenario } from "./plan_scenario.ts";
import { endpointText, isMasqueraded, tracedPacket, verdictOf } from "./traced_verdict.ts";

/**
 * The settings of the rules for a plan. `masqueradesRanges`: whether one rule masquerades the packets
 * to all cluster IPs; it is left to the plan if there is none.
 */
export function planOptions(
  plan: ProxyPlan,
  { masqueradesRanges = allowsRanges(plan) }: { readonly masqueradesRanges?: boolean } = {},
): IptablesRenderOptions {
  const usual = defaultRenderOptions(plan.family);
  return renderOptionsOf({ ...usual, localhostNodePorts: true }, plan.shared, {
    ...usual,
    masqueradesRanges,
  });
}

/** The rules for a scenario. */
export function scenarioRules(
  scenario: PacketFlowScenario,
  family: IpFamily,
  choice?: Parameters<typeof planOptions>[1],
): RuleSource {
  const plan = planScenario(scenario, family);
  const { lines } = renderIptables(plan, planOptions(plan, choice));
  const iptables = new FakeIptables();
  iptables.restore(lines.join("\n"));
  return (table, chain) => iptables.table(table).get(chain);
}

/** Returns the outcome of a packet. */
export function executeOnIptables(rules: RuleSource, packet: PacketFlowCase): PacketOutcome {
  const traced = tracedPacket(packet);
  const walk = (lists: readonly string[]) =>
    walkIptables(rules, traced, hostOf(packet.family, lists));
  const outcomes = walk([]);
  const verdict = verdictOf(outcomes);
  return {
    verdict,
    masquerade: typeof verdict !== "string" && isMasqueraded(outcomes, traced.source),
    sticky: typeof verdict !== "string" && outcomes.every((outcome) =>
      outcome.lists.length > 0 &&
      walk(outcome.lists).every((again) => endpointText(again) === endpointText(outcome))
    ),
    trace: outcomes.flatMap(({ path, verdict }) => [
      ...path.map(({ name, text }) => `${name}: ${text}`),
      `= ${verdict}`,
    ]),
  };
}

function hostOf(family: IpFamily, lists: readonly string[]): WalkedHost {
  const { loopback, node, nodeSecond } = ADDRESSES[family];
  return {
    isLocal: (address) => [loopback, node, nodeSecond].includes(address),
    isListed: (list) => lists.includes(list),
  };
}
