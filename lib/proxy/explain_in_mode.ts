import { type Backend, MODE_TRAITS } from "./backend.ts";
import { type ExplainOptions, explainPacket } from "./explain_packet.ts";
import type { Packet } from "./packet.ts";
import type { PacketExplanation } from "./packet_explanation.ts";
import type { ProxyPlan } from "./proxy_plan.ts";

interface ExplainInModeOptions extends Pick<ExplainOptions, "quarantined" | "unserved"> {
  readonly backend: Pick<Backend, "explain" | "mode">;
}

/**
 * As {@linkcode explainPacket}, with the deviations of the mode and the objects that carry the
 * packet.
 */
export function explainInMode(
  plan: ProxyPlan,
  packet: Packet,
  { backend, ...rest }: ExplainInModeOptions,
): PacketExplanation {
  const { bindsAddresses } = MODE_TRAITS[backend.mode];
  const options = { ...rest, bindsAddresses };
  const draft = explainPacket(plan, packet, { ...options, isDraft: true });
  const { deviations, carriers } = backend.explain(plan, draft);
  const explained = explainPacket(plan, packet, { ...options, ...(deviations && { deviations }) });
  const eligible = new Set<string>(
    explained.endpoints.filter(({ eligible }) => eligible).map(({ key }) => key),
  );
  return {
    ...explained,
    carriers: carriers
      .filter(({ endpoint }) => endpoint === undefined || eligible.has(endpoint))
      .map(({ object, name, text }) => ({ object, name, text })),
  };
}
