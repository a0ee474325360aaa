import type { Node } from "../../api/kinds/node.ts";
import { SERVICE, type Service } from "../../api/kinds/service.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import type { Judgement } from "../../policy/judge_connection.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import { explainInMode } from "../../proxy/explain_packet.ts";
import { explanationSteps, headline } from "./explanation_steps.ts";
import type { Packet } from "../../proxy/packet.ts";
import type {
  ExplanationStep,
  KernelState,
  NearMiss,
  PacketExplanation,
} from "../../proxy/packet_explanation.ts";
import { findHit, unservedAt } from "../../proxy/packet_hit.ts";
import type { PlannedNode } from "../offline/plan_objects.ts";
import { planSettingsOf } from "../../app/run/plan_settings.ts";
import { affinityOf, kernelState } from "./query_data_plane.ts";
import type { PacketScope } from "./packet_destinations.ts";
import { readPacketEnds } from "./packet_ends.ts";

/** The context of an explanation. */
interface ExplainWorld extends PacketScope {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly backend: (family: IpFamily) => Backend;
  readonly quarantined: (family: IpFamily) => readonly Quarantined[];
  /** As {@linkcode EndpointTracker.otherPorts}. */
  readonly otherPorts: (family: IpFamily, key: ServicePortKey) => readonly string[];
  /** The reason why the machine is not asked. @default {the backends ask it} */
  readonly notAsked?: string | undefined;
}

/** The judgement for one receiver. */
export interface JudgedReceiver extends Judgement {
  readonly to: string;
  /** The receiver's node sees the address of this node, and judges by that. */
  readonly seesNode?: true;
}

/** The verdict of the policies on a packet. */
export interface PacketPolicies {
  /** In one sentence without a full stop; absent where it adds nothing. */
  readonly answer?: string;
  readonly isDenied: boolean;
  readonly receivers: readonly JudgedReceiver[];
}

/** One packet. */
export interface ExplainedPacket extends PacketExplanation {
  readonly family: IpFamily;
  /** The answer in one sentence. */
  readonly headline: string;
  readonly kernel: KernelState;
  readonly steps: readonly ExplanationStep[];
  /** Absent if no policies are known, or the packet goes nowhere anyway. */
  readonly policies?: PacketPolicies;
}

/** The answer, as `--json` prints it. */
export interface ExplainReport {
  readonly from: string;
  readonly to: string;
  readonly nodeName: string;
  readonly mode: BackendMode;
  /** The first of each IP family stands for the node. */
  readonly nodeAddresses: readonly IpAddress[];
  /** Each a sentence without a full stop. */
  readonly assumptions: readonly string[];
  readonly packets: readonly ExplainedPacket[];
}

/**
 * Explains every packet that FROM and TO mean. Throws a ConfigurationError for an invalid operand and a
 * PacketEndsError for an unknown object.
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
  const { nodeName, mode, nodeAddresses } = world;
  return { ...ends, nodeName, mode, nodeAddresses, assumptions, packets: explained };
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
  const backend = world.backend(family);
  const quarantined = world.quarantined(family);
  const named = explainInMode(plan, packet, { backend, quarantined, unserved });
  const { notAsked } = world;
  const affinity = named.affinity && notAsked === undefined
    ? await affinityOf(backend, plan, named)
    : named.affinity;
  const explanation = affinity ? { ...named, affinity } : named;
  const kernel: KernelState = notAsked === undefined
    ? await kernelState({ clock, backend }, plan, explanation)
    : { kind: "not asked", why: notAsked };
  const context = { mode: world.mode, shared: plan.shared, kernel };
  const steps = explanationSteps(explanation, context);
  const { service, endpoints } = explanation;
  const others = service && endpoints.length === 0 ? world.otherPorts(family, service.key) : [];
  const place = steps.findIndex(({ topic }) => topic === "carriers" || topic === "kernel");
  const step = { topic: "endpoints", text: "none of this port:", items: others } as const;
  return {
    family,
    headline: headline(explanation),
    ...explanation,
    kernel,
    steps: others.length === 0 ? steps : steps.toSpliced(place < 0 ? steps.length : place, 0, step),
  };
}

/** Yields in between: reading the addresses of 10,000 Services takes a while. */
async function unservedOf(
  { clock }: { readonly clock: Clock },
  { to }: Packet,
  services: Iterable<Service>,
): Promise<readonly NearMiss[]> {
  const found: NearMiss[] = [];
  const slice = new TimeSlice(clock);
  for (const service of services) {
    for (const miss of unservedAt([service], to)) found.push(miss);
    await slice.pause();
  }
  return found;
}

interface KnownNode {
  readonly proxy: KubeProxyConfiguration;
  readonly nodeName: string;
  readonly mode: BackendMode;
  readonly node: Node | undefined;
  /** Addresses of its interfaces. */
  readonly others: Iterable<IpAddress>;
}

/** The known addresses of a node, without duplicates. The first of a family stands for the node. */
export function knownNodeAddresses(
  { proxy, nodeName, mode, node, others }: KnownNode,
): readonly IpAddress[] {
  const { addresses } = planSettingsOf(proxy, { nodeName, mode }).nodeState(node);
  return [...new Set([...addresses, ...others])];
}

/** Explains without asking a machine. Throws as {@linkcode explainEnds}. */
export async function explainPlanned(
  { clock }: { readonly clock: Clock },
  ends: { readonly from: string; readonly to: string },
  { planned, notAsked }: { readonly planned: PlannedNode; readonly notAsked: string },
): Promise<ExplainReport> {
  const { mode, nodeName, plans, informers, node, configuration: { proxy } } = planned;
  const others = [...plans.values()].flatMap(({ shared }) => shared.nodePortAddresses);
  // deno-lint-ignore no-undef -- the linter does not know this global yet
  await using opened = new AsyncDisposableStack();
  const backends = new Map<IpFamily, Backend>();
  return await explainEnds({ clock }, ends, {
    mode,
    nodeName,
    plans,
    nodeAddresses: knownNodeAddresses({ proxy, nodeName, mode, node, others }),
    services: () => informers.of(SERVICE).values(),
    backend: (family) =>
      backends.getOrInsertComputed(family, () => opened.use(planned.createBackend(family))),
    quarantined: () => [],
    otherPorts: planned.otherPorts,
    notAsked,
  });
}
