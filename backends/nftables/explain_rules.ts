/**
 * Which rules and elements of a chain that chooses are for a sender. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import type { PacketExplanation } from "../../lib/proxy/packet_explanation.ts";
import { type ChainSpec, FIRST_NUMBER, LOCAL_OFFSET } from "./chain_spec.ts";
import type { Element } from "./containers.ts";
import { fromPod } from "./local_match.ts";
import { LOCAL_BIT } from "./slots.ts";

/** What is known of the sender. */
export interface RuleContext {
  readonly explanation: Pick<PacketExplanation, "origin" | "source">;
  readonly localTraffic: LocalTrafficDetector;
  readonly family: IpFamily;
}

const FROM_NODE = "fib saddr type local ";

/** The rules, without those that are for other senders. */
export function rulesMet(
  { treatment }: Pick<ChainSpec, "treatment">,
  rules: readonly string[],
  { explanation: { origin, source }, localTraffic, family }: RuleContext,
): readonly string[] {
  if (treatment === "off-cluster") {
    const isMarked = source?.rewritten === "always";
    return rules.filter((rule) => isMarked || !rule.includes("meta mark set"));
  }
  if (treatment !== "local") return rules;
  const pod = fromPod(localTraffic, family);
  const isForPods = (rule: string) => pod !== undefined && rule.startsWith(`${pod} `);
  if (origin.isFromPod) return rules.filter(isForPods);
  if (origin.isFromNode) return rules.filter((rule) => rule.startsWith(FROM_NODE));
  return rules.filter((rule) => !isForPods(rule) && !rule.startsWith(FROM_NODE));
}

/** Whether an element is of the list that is drawn from: clients outside may have one of their own. */
export function isOfList(
  { local, affinitySeconds }: Pick<ChainSpec, "affinitySeconds" | "local">,
  { key }: Pick<Element, "key">,
  { explanation: { origin } }: RuleContext,
): boolean {
  if (local === undefined) return true;
  const number = Number(key.slice(key.lastIndexOf(" ") + 1));
  const isOutside = !origin.isFromPod && !origin.isFromNode;
  const isLocal = affinitySeconds === undefined
    ? number >= FIRST_NUMBER + LOCAL_OFFSET
    : (number & LOCAL_BIT) !== 0;
  return isLocal === isOutside;
}
