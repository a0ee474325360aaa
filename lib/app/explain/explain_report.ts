import type { Service } from "../../api/kinds/service.ts";
import { type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import { explainInMode } from "../../proxy/explain_in_mode.ts";
import { headline } from "../../proxy/explanation_headline.ts";
import { explanationSteps } from "../../proxy/explanation_steps.ts";
import type { Packet } from "../../proxy/packet.ts";
import type {
  ExplanationStep,
  KernelState,
  NearMiss,
  PacketExplanation,
} from "../../proxy/packet_explanation.ts";
import { findHit } from "../../proxy/packet_hit.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { unservedAt } from "../../proxy/unserved_services.ts";
import { readPacketEnds } from "./packet_ends.ts";
import type { PacketScope } from "./packet_scope.ts";
import { TimeSlice } from "../../os/time_slice.ts";

/** What is explained, and by what. */
export interface ExplainWorld extends PacketScope {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly backend: (family: IpFamily) => Backend;
  readonly quarantined: (family: IpFamily) => readonly Quarantined[];
  /** Asks the machine for the explanation; or why nothing is asked. */
  readonly machine: MachineQuestions | { readonly notAsked: string };
}

/** What of a machine is asked. */
export interface MachineQuestions {
  /** Whether it has what carries the packet. */
  kernel(plan: ProxyPlan, explanation: PacketExplanation): Promise<KernelState>;
  /** What is remembered of the client. */
  affinity(
    plan: ProxyPlan,
    explanation: PacketExplanation,
  ): Promise<PacketExplanation["affinity"]>;
}

/** One packet. */
export interface ExplainedPacket extends PacketExplanation {
  readonly family: IpFamily;
  /** The answer in one sentence. */
  readonly headline: string;
  readonly kernel: KernelState;
  readonly steps: readonly ExplanationStep[];
}

/** The answer, as `--json` prints it. */
export interface ExplainReport {
  readonly from: string;
  readonly to: string;
  readonly nodeName: string;
  readonly mode: BackendMode;
  /** What had to be assumed, each a sentence without a full stop. */
  readonly assumptions: readonly string[];
  readonly packets: readonly ExplainedPacket[];
}

/**
 * Explains every packet that two ends mean. Throws a ConfigurationError for what cannot be read, a
 * PacketEndsError for what is not there.
 */
export async function explainEnds(
  { clock }: { readonly clock: Clock },
  ends: { readonly from: string; readonly to: string },
  world: ExplainWorld,
): Promise<ExplainReport> {
  const { packets, assumptions } = readPacketEnds(ends, world);
  const explained: ExplainedPacket[] = [];
  for (const packet of packets) {
    explained.push(await explainOne({ clock }, packet, world));
    await clock.yieldToEventLoop();
  }
  const { nodeName, mode } = world;
  return { ...ends, nodeName, mode, assumptions, packets: explained };
}

async function explainOne(
  { clock }: { readonly clock: Clock },
  packet: Packet,
  world: ExplainWorld,
): Promise<ExplainedPacket> {
  const family = ipFamilyOf(packet.to);
  const plan = world.plans.get(family);
  if (plan === undefined) throw new Error(`Cannot explain a packet of ${family}: it is turned off`);
  const unserved = findHit(plan, packet)
    ? []
    : await unservedOf({ clock }, packet, world.services());
  await clock.yieldToEventLoop();
  const named = explainInMode(plan, packet, {
    backend: world.backend(family),
    quarantined: world.quarantined(family),
    unserved,
  });
  const { machine } = world;
  const affinity = named.affinity && !("notAsked" in machine)
    ? await machine.affinity(plan, named)
    : named.affinity;
  const explanation = affinity ? { ...named, affinity } : named;
  const kernel: KernelState = "notAsked" in machine
    ? { kind: "not asked", why: machine.notAsked }
    : await machine.kernel(plan, explanation);
  const context = { mode: world.mode, shared: plan.shared, kernel };
  return {
    family,
    headline: headline(explanation),
    ...explanation,
    kernel,
    steps: explanationSteps(explanation, context),
  };
}

/** Looks through the objects in slices: reading the addresses of 10,000 takes a while. */
async function unservedOf(
  { clock }: { readonly clock: Clock },
  { to }: Packet,
  services: Iterable<Service>,
): Promise<readonly NearMiss[]> {
  const found: NearMiss[] = [];
  const slice = new TimeSlice(clock);
  for (const service of services) {
    found.push(...unservedAt([service], to));
    await slice.pause();
  }
  return found;
}
