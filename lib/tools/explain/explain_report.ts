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
  policyNames,
  viewCluster,
} from "../../policy/judge_connection.ts";
import type { PodKey } from "../../policy/policy_plan.ts";
import type { PolicyState } from "../../policy/policy_state.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { DataPlaneDifference, Quarantined } from "../../proxy/data_plane.ts";
import type { Packet } from "../../proxy/packet.ts";
import type {
  ExplanationStep,
  KernelState,
  NearMiss,
  PacketExplanation,
} from "../../proxy/packet_explanation.ts";
import { explainPacket, findHit, unservedAt } from "../../proxy/explain_packet.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServiceInspection } from "../../proxy/service_mode.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { type PlannedNode, policyStateOf } from "../offline/planned_node.ts";
import { explanationSteps, headline, type JudgedReceiver } from "./explanation_steps.ts";
import { type PacketEnds, type PacketScope, readPacketEnds } from "./packet_ends.ts";

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
  /** How the machine is asked, or the reason why it is not. */
  readonly machine: AskMachine | string;
}

/** What a machine says about these packets; `differences` are those of all of them. */
interface AskedPackets {
  readonly differences: readonly DataPlaneDifference[];
  readonly byPacket: ReadonlyMap<PacketExplanation, AskedPacket>;
}

interface AskedPacket {
  readonly differences: readonly DataPlaneDifference[];
  readonly affinity: PacketExplanation["affinity"];
}

/** Asks the machine, perhaps later and more than once, with the plan of that time. */
export type AskMachine = (
  family: IpFamily,
  ask: (plan: ProxyPlan) => Promise<AskedPackets>,
) => Promise<AskedPackets & { readonly isUnsettled?: true }>;

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
  ends: PacketEnds,
  world: ExplainWorld,
): Promise<ExplainReport> {
  const { nodeName, mode, nodeAddresses, policies } = world;
  const podAddresses = policies &&
    ((pod: string) => policies.pods.get(pod as PodKey)?.addresses ?? []);
  const { packets, assumptions } = readPacketEnds(ends, { ...world, podAddresses });
  const explanations: PacketExplanation[] = [];
  for (const packet of packets) {
    explanations.push(await explainByPlan(clock, packet, world));
    await clock.yieldToEventLoop();
  }
  const asked = await askKernel(clock, world, explanations);
  const explained: ExplainedPacket[] = [];
  for (const explanation of explanations) {
    const { kernel, affinity } = asked.get(explanation)!;
    explained.push(completed({ ...explanation, ...(affinity && { affinity }) }, world, kernel));
    await clock.yieldToEventLoop();
  }
  return { ...ends, nodeName, mode, nodeAddresses, assumptions, packets: explained };
}

async function explainByPlan(
  clock: Clock,
  packet: Packet,
  world: ExplainWorld,
): Promise<PacketExplanation> {
  const family = ipFamilyOf(packet.to);
  const plan = planOf(world, family);
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
  const quarantined = world.quarantined(family);
  return explainPacket(plan, packet, world.backend(family), { quarantined, unserved });
}

function planOf({ plans }: Pick<ExplainWorld, "plans">, family: IpFamily): ProxyPlan {
  const plan = plans.get(family);
  if (plan === undefined) throw new Error(`Cannot explain a packet of ${family}: it is turned off`);
  return plan;
}

function completed(
  explanation: PacketExplanation,
  world: ExplainWorld,
  kernel: KernelState,
): ExplainedPacket {
  const family = ipFamilyOf(explanation.packet.to);
  const judged = world.policies ? judge(world.policies, explanation, world.nodeAddresses) : [];
  const { service, endpoints } = explanation;
  const steps = explanationSteps(explanation, {
    mode: world.mode,
    shared: planOf(world, family).shared,
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

/**
 * Asks whether the machine has everything that the Services need, and what it remembers of the clients, in
 * one question for each family. Never rejects.
 */
async function askKernel(
  clock: Clock,
  { machine, backend }: ExplainWorld,
  explanations: readonly PacketExplanation[],
): Promise<
  ReadonlyMap<
    PacketExplanation,
    { readonly kernel: KernelState; readonly affinity?: PacketExplanation["affinity"] }
  >
> {
  const notAsked = (why: string) => ({ kernel: { kind: "not asked", why } }) as const;
  const isAsked = typeof machine !== "string";
  const states = new Map<
    PacketExplanation,
    { readonly kernel: KernelState; readonly affinity?: PacketExplanation["affinity"] }
  >(explanations.map((each) => [
    each,
    notAsked(isAsked ? "no rule of a Service handles this packet" : machine),
  ]));
  if (!isAsked) return states;
  const handled = explanations.filter(({ service, verdict }) =>
    service !== undefined && verdict.kind !== "unclaimed"
  );
  const setUnknown = (packets: readonly PacketExplanation[], why: string, unknown = why) => {
    for (const each of packets) {
      const affinity = each.affinity && { ...each.affinity, unknown };
      states.set(each, { ...notAsked(why), ...(affinity && { affinity }) });
    }
  };
  let isLate = false;
  const late = Promise.withResolvers<"late">();
  const timer = clock.setTimer(MOST_MS, () => {
    isLate = true;
    late.resolve("late");
  });
  try {
    const families = Map.groupBy(handled, ({ packet: { to } }) => ipFamilyOf(to));
    for (const [family, packets] of families) {
      let isStarted = false;
      // Nothing waits for a late answer, so that it must not start another comparison.
      const answer = isLate ? late.promise : machine(family, async (plan) => {
        if (isLate) throw new Error("The time to ask is over");
        isStarted = true;
        return await askPackets(backend(family), plan, packets);
      }).catch(messageOf);
      const asked = await Promise.race([answer, late.promise]);
      const limit = `${MOST_MS / 1000} s`;
      if (asked === "late") {
        setUnknown(
          packets,
          isStarted
            ? `it took longer than ${limit} to answer; 'kube-relay diff' waits for it`
            : `syncs or other comparisons took the ${limit} to ask; 'kube-relay diff' waits for them`,
          "it was not asked in time; ask again",
        );
      } else if (typeof asked === "string") setUnknown(packets, asked);
      else {
        for (const [each, { differences, affinity }] of asked.byPacket) {
          const isUnfinished = asked.isUnsettled && differences.length > 0;
          states.set(each, {
            ...isUnfinished
              ? notAsked("syncs were changing it; ask again")
              : { kernel: { kind: "asked", differences } },
            affinity,
          });
        }
      }
    }
    return states;
  } finally {
    timer.cancel();
  }
}

async function askPackets(
  backend: Backend,
  plan: ProxyPlan,
  packets: readonly PacketExplanation[],
): Promise<AskedPackets> {
  const keys = new Set(packets.map(({ service }) => service!.key));
  // A mode that forwards itself knows its open sockets.
  const opened = packets.some((each) => socketCarrier(each) !== undefined)
    ? await backend.inspect([...keys])
    : undefined;
  const closed = new Map<PacketExplanation, DataPlaneDifference>();
  for (const each of opened ? packets : []) {
    const difference = closedSocket(each, opened!.services);
    if (difference) closed.set(each, difference);
  }
  const found = closed.size === packets.length ? [] : await backend.compare(plan, {
    keys,
    ignoresExtra: true,
    ...(opened && { serving: opened.services, quarantined: opened.quarantined }),
  });
  const byPacket = new Map<PacketExplanation, AskedPacket>();
  for (const each of packets) {
    const socket = closed.get(each);
    const differences = socket
      ? [socket]
      : found.filter(({ key }) => key === undefined || key === each.service!.key);
    byPacket.set(each, { differences, affinity: await affinityOf(backend, plan, each) });
  }
  return { differences: [...byPacket.values()].flatMap((each) => each.differences), byPacket };
}

function socketCarrier({ carriers }: PacketExplanation) {
  return carriers.find(({ object }) => object === "socket");
}

/** The difference of a socket that should be open, and is not; `undefined` = it is. */
function closedSocket(
  explanation: PacketExplanation,
  serving: readonly ServiceInspection[],
): DataPlaneDifference | undefined {
  const { packet: { to, port, protocol }, service } = explanation;
  const socket = socketCarrier(explanation);
  const key = service!.key;
  const at = serving.filter((each) => each.key === key).flatMap(({ addresses }) => addresses).find(
    (address) => address.address === to && address.port === port && address.protocol === protocol,
  );
  if (socket === undefined || at?.state === "serving") return undefined;
  const { object, name } = socket;
  // A stand-in is reached by its own address only.
  const found = at ? at.state : "served on another address, see 'kube-relay status'";
  return { object, name, key, kind: at ? "missing" : "altered", wanted: "serving", found };
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
    const keys = receivers.flatMap(({ egress, ingress }) =>
      [egress, ingress].flatMap((end) => end.kind === "allowed" ? [end.policy] : [])
    );
    const answer = keys.length > 0
      ? `ALLOWED by ${policyNames([...new Set(keys)])}`
      : "ALLOWED: no policy decides about it";
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
  ends: PacketEnds,
  planned: PlannedNode,
  machine: string,
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
    machine,
  });
}
