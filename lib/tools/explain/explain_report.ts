import type { Node } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { planSettingsOf } from "../../app/run/plan_settings.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { messageOf } from "../../log/message_of.ts";
import { type IpAddress, type IpFamily, ipFamilyOf, parseIpAddress } from "../../net/ip_address.ts";
import { formatHostPort, parsePort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import {
  type Connection,
  denialSentence,
  judgeConnection,
  viewCluster,
} from "../../policy/judge_connection.ts";
import type { PodKey } from "../../policy/policy_plan.ts";
import type { PolicyState } from "../../policy/policy_state.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { DataPlaneDifference, Quarantined } from "../../proxy/data_plane.ts";
import { explainPacket } from "../../proxy/explain_packet.ts";
import type { Packet } from "../../proxy/packet.ts";
import type {
  ExplanationStep,
  KernelState,
  NearMiss,
  PacketExplanation,
} from "../../proxy/packet_explanation.ts";
import { findHit, unservedAt } from "../../proxy/packet_hit.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { PlannedNode } from "../offline/plan_objects.ts";
import type { Report, Row } from "../report.ts";
import {
  explanationSteps,
  headline,
  type JudgedReceiver,
  sentence,
  socketOf,
} from "./explanation_steps.ts";
import { type PacketScope, readPacketEnds } from "./packet_ends.ts";
import { policyStateOf } from "./policy_state_of.ts";

/** The context of an explanation. */
interface ExplainWorld extends Omit<PacketScope, "podAddresses"> {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly backend: (family: IpFamily) => Backend;
  readonly quarantined: (family: IpFamily) => readonly Quarantined[];
  /** As {@linkcode EndpointTracker.otherPorts}. */
  readonly otherPorts: (family: IpFamily, key: ServicePortKey) => readonly string[];
  /** `undefined` = no policies and pods are known. */
  readonly policies: PolicyState | undefined;
  /** The reason why the machine is not asked. @default {the backends ask it} */
  readonly notAsked?: string | undefined;
}

/** One packet. */
export interface ExplainedPacket extends PacketExplanation {
  readonly family: IpFamily;
  /** The answer in one sentence. */
  readonly headline: string;
  readonly kernel: KernelState;
  readonly steps: readonly ExplanationStep[];
  /** The verdict of the policies. Absent if none are known, or the packet goes nowhere anyway. */
  readonly policies?: {
    /** In one sentence without a full stop; absent where it adds nothing. */
    readonly answer?: string;
    readonly isDenied: boolean;
    readonly receivers: readonly JudgedReceiver[];
  };
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
  clock: Clock,
  ends: { readonly from: string; readonly to: string },
  world: ExplainWorld,
): Promise<ExplainReport> {
  const { nodeName, mode, nodeAddresses, policies } = world;
  const podAddresses = policies &&
    ((pod: string) => policies.pods.get(pod as PodKey)?.addresses ?? []);
  const { packets, assumptions } = readPacketEnds(ends, { ...world, podAddresses });
  const explained: ExplainedPacket[] = [];
  const askedUntil = clock.now() + MOST_MS;
  for (const packet of packets) {
    explained.push(await explainOne(clock, packet, world, askedUntil));
    await clock.yieldToEventLoop();
  }
  return { ...ends, nodeName, mode, nodeAddresses, assumptions, packets: explained };
}

async function explainOne(
  clock: Clock,
  packet: Packet,
  world: ExplainWorld,
  askedUntil: number,
): Promise<ExplainedPacket> {
  const family = ipFamilyOf(packet.to);
  const plan = world.plans.get(family);
  if (plan === undefined) throw new Error(`Cannot explain a packet of ${family}: it is turned off`);
  const unserved: NearMiss[] = [];
  if (findHit(plan, packet) === undefined) {
    // Reading the addresses of 10,000 Services takes a while.
    const slice = new TimeSlice(clock);
    for (const service of world.services()) {
      unserved.push(...unservedAt([service], packet.to));
      await slice.pause();
    }
  }
  await clock.yieldToEventLoop();
  const backend = world.backend(family);
  const quarantined = world.quarantined(family);
  const named = explainPacket(plan, packet, backend, { quarantined, unserved });
  const { notAsked } = world;
  const affinity = notAsked === undefined ? await affinityOf(backend, plan, named) : named.affinity;
  const explanation = affinity ? { ...named, affinity } : named;
  const kernel: KernelState = notAsked === undefined
    ? await kernelState(clock, backend, plan, explanation, askedUntil)
    : { kind: "not asked", why: notAsked };
  const judged = world.policies ? judge(world.policies, explanation, world.nodeAddresses) : [];
  const { service, endpoints } = explanation;
  const steps = explanationSteps(explanation, {
    mode: world.mode,
    shared: plan.shared,
    kernel,
    judged,
    otherPorts: service && endpoints.length === 0 ? world.otherPorts(family, service.key) : [],
  });
  return {
    family,
    headline: headline(explanation),
    ...explanation,
    kernel,
    steps,
    ...(judged.length > 0 && { policies: policiesOf(explanation, judged) }),
  };
}

/** The time to ask the kernel, for all packets together. With 10,000 ServicePorts, one takes 2 s. */
const MOST_MS = 5_000;

/** Asks whether the machine has everything that the Service needs. Never rejects. */
async function kernelState(
  clock: Clock,
  backend: Backend,
  plan: ProxyPlan,
  explanation: PacketExplanation,
  askedUntil: number,
): Promise<KernelState> {
  const { service, verdict } = explanation;
  if (service === undefined || verdict.kind === "unclaimed") {
    return { kind: "not asked", why: "no rule of a Service handles this packet" };
  }
  const why = `it took longer than ${MOST_MS / 1000} s to answer; 'kube-relay diff' waits for it`;
  const restMs = askedUntil - clock.now();
  if (restMs <= 0) return { kind: "not asked", why };
  const late = Promise.withResolvers<KernelState>();
  const timer = clock.setTimer(restMs, () => late.resolve({ kind: "not asked", why }));
  const answer = differencesOf(backend, plan, service.key, explanation).then(
    (differences): KernelState => ({ kind: "asked", differences }),
    (error): KernelState => ({ kind: "not asked", why: messageOf(error) }),
  );
  try {
    return await Promise.race([answer, late.promise]);
  } finally {
    timer.cancel();
  }
}

async function differencesOf(
  backend: Backend,
  plan: ProxyPlan,
  key: ServicePortKey,
  { packet: { to, port, protocol }, carriers }: PacketExplanation,
): Promise<readonly DataPlaneDifference[]> {
  const keys = new Set([key]);
  const socket = carriers.find(({ object }) => object === "socket");
  if (socket === undefined) return await backend.compare(plan, { keys });
  // A mode that forwards itself knows its open sockets.
  const { services: serving, quarantined } = await backend.inspect([key]);
  const at = serving.flatMap(({ addresses }) => addresses).find((address) =>
    address.address === to && address.port === port && address.protocol === protocol
  );
  if (at?.state === "serving") return await backend.compare(plan, { keys, serving, quarantined });
  const { object, name } = socket;
  // A stand-in is reached by its own address only.
  const found = at ? at.state : "served on another address, see 'kube-relay status'";
  return [{ object, name, key, kind: at ? "missing" : "altered", wanted: "serving", found }];
}

/** Asks which endpoint the machine remembers for the client. Never rejects. */
async function affinityOf(
  backend: Backend,
  { services }: ProxyPlan,
  { affinity, endpoints, service, packet }: PacketExplanation,
): Promise<PacketExplanation["affinity"]> {
  const plan = service && services.get(service.key);
  if (affinity === undefined || plan === undefined) return affinity;
  try {
    const entry = await backend.findAffinity(plan, packet);
    // The client may have it from another frontend, under another policy.
    const isUsable = endpoints.some(({ key, eligible }) => eligible && key === entry?.endpoint);
    return { ...affinity, entry: entry && isUsable ? entry : "none" };
  } catch (error) {
    return { ...affinity, unknown: messageOf(error) };
  }
}

/** Most endpoints that are judged. */
const MOST_JUDGED = 64;

/**
 * Judges the packet after the choice of an endpoint and before its source address changes, for each
 * endpoint that may be chosen, or for the destination itself.
 */
function judge(
  state: PolicyState,
  { packet: { from, to, port, protocol }, verdict, endpoints }: PacketExplanation,
  nodeAddresses: readonly IpAddress[],
): readonly JudgedReceiver[] {
  const family = ipFamilyOf(to);
  const passes = verdict.kind === "unclaimed" && verdict.outcome === "passes";
  const receivers = passes
    ? [{ address: to, port, isLocal: true, seesNode: false }]
    : endpoints.filter(({ eligible }) => eligible).slice(0, MOST_JUDGED)
      .map(({ key, isLocal, seesNode }) => {
        const colon = key.lastIndexOf(":");
        const address = parseIpAddress(key.slice(0, colon).replace(/^\[(.*)\]$/, "$1"));
        return { address, port: parsePort(key.slice(colon + 1)), isLocal, seesNode };
      });
  const node = nodeAddresses.find((each) => ipFamilyOf(each) === family);
  const view = viewCluster(state, family);
  return receivers.map(({ address, port, isLocal, seesNode }): JudgedReceiver => {
    const connection = (source: IpAddress): Connection => ({
      from: source,
      to: address,
      transport: { protocol, port },
      ...(isLocal && from.kind === "node" && { isFromOwnNode: true }),
      ...(isLocal && nodeAddresses.includes(address) && { isToOwnNode: true }),
    });
    // The node of a remote endpoint sees what this node made of the source.
    const seen = seesNode && !isLocal ? node : undefined;
    const { egress } = judgeConnection(view, connection(from.address));
    const { ingress } = judgeConnection(view, connection(seen ?? from.address));
    const isAllowed = denialSentence({ egress, ingress }) === undefined;
    const to = formatHostPort(address, port);
    return { to, egress, ingress, isAllowed, ...(seen && { seesNode: true }) };
  });
}

function policiesOf(
  { verdict }: PacketExplanation,
  receivers: readonly JudgedReceiver[],
): NonNullable<ExplainedPacket["policies"]> {
  const denied = receivers.filter(({ isAllowed }) => !isAllowed);
  const [first] = denied;
  const isDenied = denied.length === receivers.length;
  if (first === undefined) {
    const answer = "ALLOWED by NetworkPolicy";
    return { ...(verdict.kind !== "forward" && { answer }), isDenied, receivers };
  }
  const start = isDenied
    ? "DENIED"
    : `DENIED for ${denied.length} of ${receivers.length} endpoints,`;
  return { answer: `${start} ${denialSentence(first)}`, isDenied, receivers };
}

/** The known addresses of a node, without duplicates. The first of a family stands for the node. */
export function knownNodeAddresses(
  proxy: KubeProxyConfiguration,
  identity: { readonly nodeName: string; readonly mode: BackendMode },
  node: Node | undefined,
  ofInterfaces: Iterable<IpAddress>,
): readonly IpAddress[] {
  const { addresses } = planSettingsOf(proxy, identity).nodeState(node);
  return [...new Set([...addresses, ...ofInterfaces])];
}

/** Explains without asking a machine. Throws as {@linkcode explainEnds}. */
export async function explainPlanned(
  clock: Clock,
  ends: { readonly from: string; readonly to: string },
  planned: PlannedNode,
  notAsked: string,
): Promise<ExplainReport> {
  const { mode, nodeName, plans, informers, node, configuration: { proxy } } = planned;
  const others = [...plans.values()].flatMap(({ shared }) => shared.nodePortAddresses);
  // deno-lint-ignore no-undef -- the linter does not know this global yet
  await using opened = new AsyncDisposableStack();
  const backends = new Map<IpFamily, Backend>();
  return await explainEnds(clock, ends, {
    mode,
    nodeName,
    plans,
    nodeAddresses: knownNodeAddresses(proxy, { nodeName, mode }, node, others),
    services: () => informers.of(SERVICE).values(),
    backend: (family) =>
      backends.getOrInsertComputed(family, () => opened.use(planned.createBackend(family))),
    quarantined: () => [],
    otherPorts: planned.otherPorts,
    policies: policyStateOf(informers),
    notAsked,
  });
}

const TITLES: Readonly<Record<ExplanationStep["topic"], string>> = {
  from: "From",
  to: "To",
  nearest: "Nearest",
  sources: "Admitted",
  policy: "Policy",
  endpoints: "Endpoints",
  source: "Source",
  affinity: "Affinity",
  settings: "Settings",
  egress: "Egress",
  ingress: "Ingress",
  carriers: "Carried by",
  kernel: "Kernel",
};

/** Shows each packet with its steps, below the assumptions about all of them. */
export function explanationReport(
  { mode, nodeName, assumptions, packets }: ExplainReport,
): Report {
  return {
    title: "",
    rows: [
      { cells: [`On node ${nodeName}, mode ${mode}`] },
      ...assumptions.map((text) => sentence(`Note: ${text}`, "warning")),
    ],
    parts: packets.map((explained) => ({
      title: `${explained.packet.from.address} -> ${socketOf(explained.packet)}`,
      rows: packetRows(explained),
      parts: [],
    })),
  };
}

function packetRows(
  { headline, verdict, policies, kernel, steps }: ExplainedPacket,
): readonly Row[] {
  const isAllowed = policies?.receivers.every((each) => each.isAllowed) ?? true;
  const isAltered = kernel.kind === "asked" && kernel.differences.length > 0;
  return [
    // A denial comes first: it is the reason why the connection fails.
    ...(policies?.answer === undefined
      ? []
      : [sentence(policies.answer, isAllowed ? "good" : "bad")]),
    isAllowed
      ? sentence(headline, verdict.kind === "forward" ? "good" : "bad")
      : sentence(`Without NetworkPolicies: ${headline}`, "detail"),
    ...(isAltered
      ? [sentence("BUT the kernel holds something else: see the last step", "bad")]
      : []),
    ...steps.map(({ topic, text, items = [] }, index) => ({
      cells: [String(index + 1), TITLES[topic], text],
      detail: items,
    })),
  ];
}
