/** Explanations in words: the headline and the steps. Pure. */
import { formatHostPort } from "../../net/port.ts";
import { ANY_NAME } from "../../net/server_name.ts";
import { endSentence, type Judgement } from "../../policy/judge_connection.ts";
import { type BackendMode, ignoredDsr, MODE_TRAITS } from "../../proxy/backend.ts";
import { describeEdgeSettings } from "../../proxy/edge_settings.ts";
import { PRECEDENCE_TEXTS } from "../../proxy/frontend_owners.ts";
import { socketOf } from "../../proxy/packet.ts";
import type {
  ExplainedEndpoint,
  ExplanationStep,
  KernelState,
  NearMiss,
  PacketCarrier,
  PacketExplanation,
  SourceReason,
  UnservedReason,
} from "../../proxy/packet_explanation.ts";
import type { SharedPlan } from "../../proxy/proxy_plan.ts";
import type { FrontendRole, NodeTopology } from "../../proxy/service_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";

/** What NetworkPolicies say about the packet to one receiver. */
export interface JudgedReceiver extends Judgement {
  readonly to: string;
  /** The receiver's node sees the address of this node, and judges by that. */
  readonly seesNode?: true;
}

/** The result in one sentence, without a full stop. */
export function headline({ verdict, service, endpoints, packet }: PacketExplanation): string {
  const name = service && nameOf(service.key);
  if (verdict.kind === "forward") {
    const [first, ...others] = endpoints.filter(({ eligible }) => eligible);
    return others.length === 0
      ? `FORWARDED to ${first?.key}, the only endpoint of ${name} that may get it`
      : `FORWARDED to one of ${others.length + 1} endpoints of ${name}`;
  }
  const reasons: Readonly<Record<typeof verdict.why, string>> = {
    "no-endpoints": endpoints.length === 0
      ? `${name} has no endpoints`
      : `none of the ${endpoints.length} endpoints of ${name} is ready`,
    "no-local-endpoints": `${name} has no endpoint on this node, and its traffic policy is Local`,
    "source-ranges": `the source ranges of ${name} do not admit ${packet.from.address}`,
    "mode": verdict.detail ?? "",
    "no-service": `no Service has ${socketOf(packet)}`,
    "own-port": verdict.detail ?? "",
    "refused": verdict.detail ?? "",
    "quarantined": `${name} is IN QUARANTINE, so this address is not in effect`,
    "unserved-by-mode": `${name} is not served at this address`,
  };
  return `${OUTCOMES[verdict.kind === "unclaimed" ? verdict.outcome : verdict.kind]}: ` +
    reasons[verdict.why];
}

const OUTCOMES = {
  passes: "NOT HANDLED",
  reject: "REFUSED at once",
  drop: "DROPPED in silence",
} as const;

/** The display name of a ServicePort. */
function nameOf(key: ServicePortKey | string): string {
  return key.slice(0, key.lastIndexOf("/"));
}

/** Maximum number of named endpoints of each kind. */
const MOST_ENDPOINTS = 12;

const ROLE_WORDS: Readonly<Record<FrontendRole, string>> = {
  ClusterIP: "cluster IP",
  ExternalIP: "external IP",
  LoadBalancer: "load balancer address",
  NodePort: "node port",
};

/** The steps, in the order of the decisions. */
export function explanationSteps(
  explanation: PacketExplanation,
  { mode, shared, kernel, judged, otherPorts }: {
    readonly mode: BackendMode;
    readonly shared: SharedPlan;
    readonly kernel: KernelState;
    /** The judgements of NetworkPolicies. */
    readonly judged: readonly JudgedReceiver[];
    /** Why no endpoint belongs to this port. */
    readonly otherPorts: readonly string[];
  },
): readonly ExplanationStep[] {
  const { packet, service, verdict, sourceRanges, policy, endpoints, source, carriers, edge } =
    explanation;
  const { forwardsItself } = MODE_TRAITS[mode];
  const steps: ExplanationStep[] = [];
  const add = (topic: ExplanationStep["topic"], text: string, items: readonly string[] = []) =>
    steps.push({ topic, text, ...(items.length > 0 && { items }) });

  add("from", `${packet.from.address}${senderText(explanation, shared)}`);
  const owner = service
    ? `the ${ROLE_WORDS[service.role]} of ${nameOf(service.key)}`
    : verdict.kind === "unclaimed" && verdict.why === "own-port"
    ? "an address and port of kube-relay itself"
    : "an address and port that no Service has";
  add("to", `${socketOf(packet)}, ${owner}`, destinationItems(explanation, mode));
  if (explanation.nearMisses.length > 0) {
    const items = explanation.nearMisses.map((miss) => missItem(miss, packet, shared));
    add("nearest", "possible targets:", items);
  }
  if (sourceRanges !== undefined) {
    const { ranges, admitted, isException } = sourceRanges;
    const exception = isException ? ", by the exception for packets of the node" : "";
    const admits = admitted ? "admit" : "do not admit";
    add(
      "sources",
      ranges.length === 0
        ? "loadBalancerSourceRanges has no valid range of this IP family: no client is admitted"
        : `loadBalancerSourceRanges ${admits} ${packet.from.address}${exception}: ` +
          ranges.join(", "),
    );
  }
  if (policy !== undefined) {
    const { ofService } = policy;
    const name = policy.verdict === "internal" ? "internalTrafficPolicy" : "externalTrafficPolicy";
    const node = shared.node.name === "" ? "" : ` (${shared.node.name})`;
    const where = policy.policy === "Local"
      ? `only endpoints on this node${node}`
      : "endpoints on every node";
    const text = policy.policy === ofService
      ? `${name} ${ofService}: ${where}`
      : `${name} ${ofService} applies to outside clients only, not to pods and the node: ${where}`;
    const { modeReason, hints, isFallback } = policy;
    const place = hints === "node" ? shared.node.name : shared.node.zone;
    const items = [
      ...(modeReason === undefined ? [] : [modeReason]),
      ...(hints === undefined
        ? []
        : [`all ready endpoints have hints, so only those for ${hints} ${place} are used`]),
      ...(isFallback
        ? ["no endpoint is ready: those that are terminating and still serve are used instead"]
        : []),
    ];
    add("policy", text, items);
  }
  const isReported = verdict.kind !== "unclaimed" &&
    (verdict.kind === "forward" || verdict.why !== "source-ranges");
  if (isReported && endpoints.length > 0) {
    const eligible = endpoints.filter((endpoint) => endpoint.eligible);
    const others = endpoints.filter((endpoint) => !endpoint.eligible);
    const items = [eligible, others].flatMap((list) => [
      ...list.slice(0, MOST_ENDPOINTS).map((endpoint) => endpointItem(endpoint, shared.node)),
      ...(list.length > MOST_ENDPOINTS
        ? [`${list === eligible ? "+" : "-"} and ${list.length - MOST_ENDPOINTS} more`]
        : []),
    ]);
    add("endpoints", `${eligible.length} of ${endpoints.length} may get it`, items);
  }
  if (source !== undefined) {
    const hairpins = source.rewritten === "own-packets"
      ? endpoints.filter(({ seesNode }) => seesNode)
      : [];
    const why = source.detail ?? REASONS[source.reason];
    const { address } = packet.from;
    const text = source.rewritten === "always"
      ? `CHANGES from ${address} to an address of the node: ${why}`
      : `stays ${address}: ${why}`;
    const items = hairpins.map(({ key }) =>
      `${key} would get its own packet (hairpin): there the node's address takes its place`
    );
    add("source", text, items);
  }
  if (verdict.kind === "forward") {
    const isHashed = forwardsItself && edge?.balance === "source-hash";
    const seconds = explanation.affinity?.timeoutSeconds;
    const text = seconds !== undefined
      ? `ClientIP: a client keeps its endpoint until it has been idle for ${seconds} s`
      : isHashed
      ? "by source-hash: a client keeps its endpoint while the endpoint exists"
      : "none: every new connection may get another endpoint";
    const { entry, unknown } = explanation.affinity ?? {};
    const items: string[] = [];
    if (entry === "none") {
      items.push("no endpoint is remembered for this client: any may be chosen");
    } else if (entry !== undefined) {
      const { endpoint, expiresInSeconds: left } = entry;
      const until = left === undefined ? "" : `, for another ${left} s`;
      items.push(`this client is bound to ${endpoint}${until}`);
    }
    if (unknown !== undefined) items.push(`the endpoint of this client is unknown: ${unknown}`);
    add("affinity", text, items);
  }
  if (edge !== undefined) {
    const text = forwardsItself
      ? "by annotations of the Service:"
      : `mode ${mode} does not apply these annotations of the Service:`;
    add("settings", text, describeEdgeSettings(edge));
  }
  const ignored = ignoredDsr(mode, explanation.annotations);
  if (ignored !== undefined) add("settings", ignored);
  if (otherPorts.length > 0) add("endpoints", "none of this port:", otherPorts);
  for (const end of judged.length > 0 ? ["egress", "ingress"] as const : []) {
    const { text, items } = judgementText(end, judged, explanation);
    add(end, text, items);
  }
  if (carriers.length === 0) return steps;
  add("carriers", "in this order:", carriers.map(carrierItem));
  if (kernel.kind === "not asked") add("kernel", `not asked: ${kernel.why}`);
  else if (kernel.differences.length === 0) {
    const sockets = "looked just now: the sockets are as they should be";
    add("kernel", forwardsItself ? sockets : "asked just now: it has all of it");
  } else {
    const { differences, differences: { length } } = kernel;
    const count = length === 1 ? "1 difference" : `${length} differences`;
    add(
      "kernel",
      `asked just now: ${count} from what this Service needs; 'kube-relay diff' shows more`,
      differences.map(({ kind, object, name, wanted, found }) => {
        const both = wanted !== undefined && found !== undefined;
        const text = both ? `wanted ${wanted}; found ${found}` : wanted ?? found ?? "";
        return `${kind.toUpperCase()} ${object} ${name}: ${text}`;
      }),
    );
  }
  return steps;
}

/** Whether the sender counts as a pod, and why. */
function senderText(
  { packet: { from }, origin }: PacketExplanation,
  { localTraffic }: SharedPlan,
): string {
  if (origin.isFromNode) return ", this node itself";
  switch (localTraffic.kind) {
    case "none":
      return ": it is unknown whether it is a pod (neither --cluster-cidr nor another detector is set)";
    case "byCidr":
      return origin.isFromPod
        ? `, a pod: it is in ${localTraffic.cidr}, the range of pods`
        : `, counts as outside: it is not in ${localTraffic.cidr}, the range of pods`;
    case "byBridge":
    case "byInterfacePrefix": {
      const wanted = localTraffic.kind === "byBridge"
        ? localTraffic.interfaceName
        : `${localTraffic.prefix}…`;
      if (origin.isFromPod) return `, a pod of this node: it arrives by ${wanted}`;
      const what = from.kind === "pod" ? "a pod, but it counts as outside" : "counts as outside";
      return `, ${what}: it does not arrive by ${wanted}, as pods of this node do`;
    }
  }
}

function destinationItems(
  { service, verdict, serviceCidr }: PacketExplanation,
  mode: BackendMode,
): readonly string[] {
  const claims =
    service?.otherClaimants.map(({ key, why }) =>
      `${nameOf(key)} also claims this address and port: ${PRECEDENCE_TEXTS[why]}`
    ) ?? [];
  if (verdict.kind !== "unclaimed") return [...claims, ...nameItems(service?.names)];
  const isInHeadline = verdict.why === "own-port" || verdict.why === "refused";
  return [
    ...claims,
    ...(verdict.detail !== undefined && !isInHeadline ? [verdict.detail] : []),
    ...(serviceCidr !== undefined && verdict.why === "no-service"
      ? [`it is in ${serviceCidr}, from which cluster IPs are taken`]
      : []),
    verdict.outcomeReason ??
      `mode ${mode} does not handle it: it is routed like any other packet`,
  ];
}

/** Where server names lead. */
function nameItems(names: readonly { readonly name: string; readonly key: string }[] = []) {
  const items = names.slice(0, MOST_ENDPOINTS).map(({ name, key }) =>
    `connections ${name === ANY_NAME ? "without another server name" : `for ${name}`} lead to ${
      nameOf(key)
    }`
  );
  const more = names.length - items.length;
  return more > 0 ? [...items, `and ${more} more server names`] : items;
}

/** What the policies of one end say, in one sentence if it is the same for all receivers. */
function judgementText(
  end: "egress" | "ingress",
  judged: readonly JudgedReceiver[],
  { packet: { from }, endpoints }: PacketExplanation,
): { readonly text: string; readonly items: readonly string[] } {
  const groups = [...Map.groupBy(judged, (receiver) =>
    endSentence(end, receiver[end]) +
    (end === "ingress" && receiver.seesNode
      ? "; judged by the address of this node, which is all that the other node sees"
      : ""))];
  const mayEnterElsewhere = end === "ingress" && from.kind === "outside" &&
    endpoints.some(({ eligible, seesNode }) => eligible && seesNode);
  const items = mayEnterElsewhere
    ? ["a client that enters by another node is judged by the address of that node"]
    : [];
  if (groups.length === 1) return { text: groups[0]![0], items };
  const each = groups.map(([text, receivers]) =>
    `${receivers.map(({ to }) => to).join(", ")}: ${text}`
  );
  return { text: "differs between the endpoints:", items: [...each, ...items] };
}

/** Includes the name only if the text does not contain it. */
function carrierItem({ object, name, text }: PacketCarrier): string {
  if (text.startsWith(`${name} `)) return `${object} ${name}: ${text.slice(name.length + 1)}`;
  const words = name.split(" ");
  const last = words.pop() ?? "";
  if (!text.includes(last)) return `${object} ${name}: ${text}`;
  return words.length === 0 ? `${object}: ${text}` : `${object} (${words.join(" ")}): ${text}`;
}

const REASONS: Readonly<Record<SourceReason, string>> = {
  "cluster-policy": "with externalTrafficPolicy Cluster the endpoint may be on another node, and " +
    "its answers must come back through this node; the client's address is lost (policy Local keeps it)",
  "from-node": "the node's own address may be one that the endpoint cannot answer",
  "keeps-client": "externalTrafficPolicy Local keeps the client's address",
  "masquerade-all": "masqueradeAll is set",
  "mode": "",
  "no-detector": "which packets come from pods is not known, so none is masqueraded; " +
    "--cluster-cidr would show it",
  "off-cluster": "the sender counts as outside, and answers have to come back through this node",
  "pod": "pods keep their address",
};

/** One endpoint: `+` may receive the packet, `-` may not, with the reason. */
function endpointItem(
  { key, eligible, isLocal, nodeName, exclusion, leftOut, terminating, serving, ...hints }:
    ExplainedEndpoint,
  { name, zone }: NodeTopology,
): string {
  const { nodeHints = [], zoneHints = [] } = hints;
  const place = isLocal ? "this node" : nodeName === undefined ? "no node named" : `on ${nodeName}`;
  if (eligible) return `+ ${key} (${place}${terminating ? ", terminating" : ""})`;
  if (leftOut !== undefined) return `- ${key} (${place}): left out: ${leftOut}`;
  if (exclusion === undefined) return `- ${key} (${place}): would be used`;
  const stopping = serving ? "terminating, and others are ready" : "terminating";
  const texts: Readonly<Record<typeof exclusion, string>> = {
    "other-node": "not on this node, and the policy is Local",
    "node-hint": `hinted for node ${nodeHints.join(", ")}, not for ${name}`,
    "zone-hint": `hinted for zone ${zoneHints.join(", ")}; this node is in ${zone}`,
    "not-ready": terminating ? stopping : "not ready",
    "not-serving": terminating ? "terminating, and no longer serving" : "not ready",
  };
  return `- ${key} (${place}): ${texts[exclusion]}`;
}

const UNSERVED: Readonly<Record<UnservedReason, string>> = {
  ExternalName: "it is an ExternalName",
  headless: "it is headless",
  "other proxy": "its label service.kubernetes.io/service-proxy-name gives it to another proxy",
  "external IP": "as external IP, which is not allowed here (feature gate AllowServiceExternalIPs)",
  "ipMode Proxy": "as load balancer address of ipMode Proxy, which belongs to the load balancer",
  skipped:
    "as load balancer address, which its annotation kube-router.io/service.skiplbips leaves out",
  "no usable port": "it has no port that can be used",
};

/** Describes one near miss. */
function missItem(
  { kind, service, address, port, protocol, reason }: NearMiss,
  packet: PacketExplanation["packet"],
  { nodePortAddresses }: SharedPlan,
): string {
  const name = kind === "unserved" ? service : nameOf(service);
  const served = nodePortAddresses.slice(0, 4).join(", ") || "no address";
  const socket = formatHostPort(packet.to, packet.port);
  const texts: Readonly<Record<typeof kind, string>> = {
    endpoint: `${socket} is an endpoint of ${name} itself: what is sent straight to a pod passes ` +
      "by every Service",
    "own-port": `${name} asks for this address and port, which stay with kube-relay`,
    refused: `${name} asks for this address, which it may not have on this node`,
    "other-port": `${name} has this address, on port ${port}/${protocol}`,
    "target-port": `${name} has this address, on port ${port}/${protocol}; ${packet.port} is the ` +
      "port of its endpoints",
    "node-port":
      `${packet.port}/${protocol} is the node port of ${name}; node ports are on ${served}`,
    "other-address": `${name} has port ${port}/${protocol} on ${address}`,
    unserved: `${name} has this address and is not served: ${UNSERVED[reason ?? "no usable port"]}`,
  };
  return texts[kind];
}
