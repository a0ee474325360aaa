/**
 * Adds what NetworkPolicies say to an explanation: the packet is judged after the choice of an endpoint
 * and before its source address changes.
 *
 * @module
 */
import { type IpAddress, ipFamilyOf, parseIpAddress } from "../../net/ip_address.ts";
import { formatHostPort, parsePort } from "../../net/port.ts";
import { denialSentence, endSentence } from "../../policy/explain_connection.ts";
import { type Connection, judgeConnection, viewCluster } from "../../policy/judge_connection.ts";
import type { Direction, PodKey } from "../../policy/policy_plan.ts";
import type { PolicyState } from "../../policy/policy_state.ts";
import type { ExplainedEndpoint, ExplanationStep } from "../../proxy/packet_explanation.ts";
import type {
  ExplainedPacket,
  ExplainReport,
  JudgedReceiver,
  PacketPolicies,
} from "./explain_report.ts";
import { podReceiver, podSender } from "./packet_end_text.ts";

/** Most endpoints that are judged. */
const MOST_JUDGED = 64;

/** An endpoint that may be chosen, or the destination itself. */
interface Receiver extends Pick<ExplainedEndpoint, "isLocal" | "seesNode"> {
  readonly address: IpAddress;
  readonly port: number;
}

/** Explains, with pods as ends, and adds what policies say. `undefined` = no policies are known. */
export async function explainWithPolicies(
  state: PolicyState | undefined,
  ends: { readonly from: string; readonly to: string },
  explain: (ends: { readonly from: string; readonly to: string }) => Promise<ExplainReport>,
): Promise<ExplainReport> {
  if (state === undefined) return await explain(ends);
  const addressesOf = (pod: string) => state.pods.get(pod as PodKey)?.addresses ?? [];
  const from = podSender(ends, addressesOf);
  let report: ExplainReport;
  try {
    report = await explain({ from: from ?? ends.from, to: ends.to });
  } catch (error) {
    // The name of a Service takes precedence over that of a pod.
    const to = podReceiver(from ?? ends.from, ends.to, addressesOf);
    if (to === undefined) throw error;
    report = await explain({ from: from ?? ends.from, to });
  }
  const packets = report.packets.map((each) => addPolicies(state, each, report.nodeAddresses));
  return { ...report, ...ends, packets };
}

function addPolicies(
  state: PolicyState,
  packet: ExplainedPacket,
  nodeAddresses: readonly IpAddress[],
): ExplainedPacket {
  const { from, protocol } = packet.packet;
  const receivers = receiversOf(packet).slice(0, MOST_JUDGED);
  if (receivers.length === 0) return packet;
  const node = nodeAddresses.find((each) => ipFamilyOf(each) === packet.family);
  const connection = (
    source: IpAddress,
    { address: to, port, isLocal }: Receiver,
  ): Connection => ({
    from: source,
    to,
    transport: { protocol, port: parsePort(port) },
    ...(isLocal && from.kind === "node" && { isFromOwnNode: true }),
    ...(isLocal && nodeAddresses.includes(to) && { isToOwnNode: true }),
  });
  // The node of a remote endpoint sees what this node made of the source.
  const seen = receivers.map((each) => each.seesNode && !each.isLocal ? node : undefined);
  const view = viewCluster(state, packet.family);
  const judged = receivers.map((each, index): JudgedReceiver => {
    const { address, port } = each;
    const { egress } = judgeConnection(view, connection(from.address, each));
    const { ingress } = judgeConnection(view, connection(seen[index] ?? from.address, each));
    const both = { egress, ingress, isAllowed: true };
    const isAllowed = denialSentence(both) === undefined;
    const to = formatHostPort(address, port);
    return { to, ...both, isAllowed, ...(seen[index] && { seesNode: true }) };
  });
  const policies = summary(packet, judged);
  const steps = (["egress", "ingress"] as const).map((end) => endStep(end, judged, packet));
  const place = packet.steps.findIndex(({ topic }) => topic === "carriers" || topic === "kernel");
  return {
    ...packet,
    policies,
    steps: packet.steps.toSpliced(place < 0 ? packet.steps.length : place, 0, ...steps),
  };
}

function receiversOf({ packet, verdict, endpoints }: ExplainedPacket): readonly Receiver[] {
  if (verdict.kind === "unclaimed") {
    const { to: address, port } = packet;
    return verdict.outcome === "passes" ? [{ address, port, isLocal: true }] : [];
  }
  if (verdict.kind !== "forward") return [];
  return endpoints.filter(({ eligible }) => eligible).map(({ key, ...rest }) => {
    const colon = key.lastIndexOf(":");
    const address = parseIpAddress(key.slice(0, colon).replace(/^\[(.*)\]$/, "$1"));
    return { ...rest, address, port: Number(key.slice(colon + 1)) };
  });
}

function summary({ verdict }: ExplainedPacket, judged: readonly JudgedReceiver[]): PacketPolicies {
  const denied = judged.filter(({ isAllowed }) => !isAllowed);
  const [first] = denied;
  const isDenied = denied.length === judged.length;
  if (first !== undefined) {
    const start = isDenied
      ? "DENIED"
      : `DENIED for ${denied.length} of ${judged.length} endpoints,`;
    return { answer: `${start} ${denialSentence(first)}`, isDenied, receivers: judged };
  }
  if (verdict.kind === "forward") return { isDenied, receivers: judged };
  return { answer: "ALLOWED by NetworkPolicy", isDenied, receivers: judged };
}

function endStep(
  topic: Direction,
  judged: readonly JudgedReceiver[],
  { packet: { from }, endpoints }: ExplainedPacket,
): ExplanationStep {
  const sentence = (receiver: JudgedReceiver) => {
    const note = topic === "ingress" && receiver.seesNode
      ? "; judged by the address of this node, which is all that the other node sees"
      : "";
    return endSentence(topic, receiver[topic]) + note;
  };
  const groups = [...Map.groupBy(judged, sentence)];
  const mayEnterElsewhere = topic === "ingress" && from.kind === "outside" &&
    endpoints.some(({ eligible, seesNode }) => eligible && seesNode);
  const items = mayEnterElsewhere
    ? ["a client that enters by another node is judged by the address of that node"]
    : [];
  if (groups.length === 1) {
    return { topic, text: groups[0]![0], ...(items.length > 0 && { items }) };
  }
  const each = groups.map(([text, receivers]) =>
    `${receivers.map(({ to }) => to).join(", ")}: ${text}`
  );
  return { topic, text: "differs between the endpoints:", items: [...each, ...items] };
}
