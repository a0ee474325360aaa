/**
 * What becomes of a packet in the mode that is used.
 *
 * @module
 */
import type { Backend } from "./backend.ts";
import { type ExplainOptions, explainPacket } from "./explain_packet.ts";
import type { Packet } from "./packet.ts";
import type { PacketExplanation } from "./packet_explanation.ts";
import type { ProxyPlan } from "./proxy_plan.ts";

/** What is known beside the plan. */
interface ExplainInModeOptions extends Omit<ExplainOptions, "deviations" | "isDraft"> {
  readonly backend: Pick<Backend, "explain">;
}

/** As {@linkcode explainPacket}, with what the mode does in another way and what carries the packet. */
export function explainInMode(
  plan: ProxyPlan,
  packet: Packet,
  { backend, ...options }: ExplainInModeOptions,
): PacketExplanation {
  const planned = explainPacket(plan, packet, { ...options, isDraft: true });
  const { deviations, carriers = [] } = backend.explain?.(plan, planned) ?? {};
  const explained = explainPacket(plan, packet, { ...options, ...(deviations && { deviations }) });
  return { ...explained, carriers };
}
