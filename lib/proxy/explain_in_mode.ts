/**
 * Explains a packet in the active mode.
 *
 * @module
 */
import type { Backend } from "./backend.ts";
import { type ExplainOptions, explainPacket } from "./explain_packet.ts";
import type { Packet } from "./packet.ts";
import type { PacketExplanation } from "./packet_explanation.ts";
import type { ProxyPlan } from "./proxy_plan.ts";

/** The context besides the plan. */
interface ExplainInModeOptions extends Omit<ExplainOptions, "deviations" | "isDraft"> {
  readonly backend: Pick<Backend, "explain">;
}

/**
 * As {@linkcode explainPacket}, with the deviations of the mode and the objects that carry the
 * packet.
 */
export function explainInMode(
  plan: ProxyPlan,
  packet: Packet,
  { backend, ...options }: ExplainInModeOptions,
): PacketExplanation {
  const draft = explainPacket(plan, packet, { ...options, isDraft: true });
  let told = backend.explain(plan, draft);
  const admitted = told.deviations?.admitted;
  // What else a mode says depends on whether it admits the client.
  if (admitted !== undefined && admitted !== draft.sourceRanges?.admitted) {
    const known = { ...options, deviations: { admitted }, isDraft: true };
    told = backend.explain(plan, explainPacket(plan, packet, known));
  }
  const { deviations, carriers = [] } = told;
  const explained = explainPacket(plan, packet, { ...options, ...(deviations && { deviations }) });
  return { ...explained, carriers };
}
