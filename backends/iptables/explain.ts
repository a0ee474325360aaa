/**
 * The rules that carry a packet, and where this mode deviates from the plan. Pure.
 *
 * @module
 */
import { isLoopback } from "../../lib/net/ip_address.ts";
import { admission } from "../../lib/proxy/admitted_sources.ts";
import type { ModeExplanation, PacketExplanation } from "../../lib/proxy/packet_explanation.ts";
import { findHit, type PacketHit } from "../../lib/proxy/packet_hit.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { type RuleSource, walkIptables } from "../netfilter/walk/iptables_walk.ts";
import { carriersOf, walkedPacket } from "../netfilter/walk/walk_steps.ts";
import { baseJumps } from "./base_chains.ts";
import { chainKey } from "./chain_ref.ts";
import type { IptablesLayout } from "./layout.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import { unsupportedParts } from "./unsupported.ts";

/**
 * Explains a packet to a ServicePort by walking the rules that the kernel is given. `layout` holds all
 * ServicePorts of the plan.
 */
export function explainIptables(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  layout: IptablesLayout,
): ModeExplanation {
  const hit = findHit(plan, explanation.packet);
  const unserved = hit && unservedReason(hit, explanation, layout.options);
  if (unserved !== undefined) return { deviations: { unserved }, carriers: [] };
  if (hit === undefined || explanation.verdict.kind === "unclaimed") return { carriers: [] };
  const { packet } = explanation;
  const { nodePortAddresses } = plan.shared;
  const outcomes = walkIptables(rulesOf(layout), walkedPacket(packet), {
    isLocal: (address) =>
      nodePortAddresses.includes(address) || isLoopback(address) ||
      (packet.from.kind === "node" && address === packet.from.address),
    isListed: () => undefined,
  });
  const deviations = admission(hit, {
    source: packet.from.address,
    nodeIps: [layout.options.nodeIp],
  });
  return { deviations, carriers: carriersOf(outcomes) };
}

function unservedReason(
  { role, service }: PacketHit,
  { packet: { to } }: PacketExplanation,
  options: IptablesRenderOptions,
): string | undefined {
  const { everything, external, quarantined } = unsupportedParts(service, options.features);
  if (everything || (external && role !== "ClusterIP")) return quarantined[0]?.reason;
  if (role !== "NodePort" || !isLoopback(to)) return undefined;
  if (options.family === "IPv6") return "IPv6 has no route_localnet: what goes to ::1 stays there";
  if (options.localhostNodePorts) return undefined;
  return "node ports on 127.0.0.0/8 are turned off, by --iptables-localhost-nodeports or " +
    "--nodeport-addresses";
}

/** Renders the chains of a layout as the walk reaches them. */
function rulesOf(layout: IptablesLayout): RuleSource {
  const jumps = baseJumps(layout.options);
  const known = new Map([...layout.lasting()].map((ref) => [chainKey(ref), ref]));
  return (table, name) => {
    if (!name.startsWith("KUBE-")) {
      // Each is inserted at the top of its chain.
      return jumps.filter((jump) => jump.table === table && jump.from === name)
        .map(({ rule }) => ruleText(rule)).reverse();
    }
    const ref = known.get(chainKey({ table, name }));
    if (ref === undefined) return undefined;
    for (const next of layout.next(ref)) known.set(chainKey(next), next);
    return layout.content(ref)?.rules;
  };
}
