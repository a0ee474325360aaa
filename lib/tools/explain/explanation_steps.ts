/** Explanations in words: the headline and the steps. Pure. */
import type { FrontendRole } from "../../proxy/service_plan.ts";
import { PRECEDENCE_TEXTS } from "../../proxy/frontend_owners.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import { describeEdgeSettings } from "../../proxy/edge_settings.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane_difference.ts";
import { formatHostPort } from "../../net/port.ts";
import type {
  ExplainedEndpoint,
  ExplainedSource,
  ExplainedVerdict,
  ExplanationStep,
  KernelState,
  NearMiss,
  PacketCarrier,
  PacketExplanation,
  SourceReason,
  UnservedReason,
} from "../../proxy/packet_explanation.ts";
import type { SharedPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { NodeTopology } from "../../proxy/topology.ts";
import { assertNever } from "../../proxy/verdict.ts";

/** The result in one sentence, without a full stop. */
export function headline(explanation: PacketExplanation): string {
  const { verdict, service, endpoints } = explanation;
  const name = service && nameOf(service.key);
  switch (verdict.kind) {
    case "forward": {
      const [first, ...others] = endpoints.filter(({ eligible }) => eligible);
      return others.length === 0
        ? `FORWARDED to ${first?.key}, the only endpoint of ${name} that may get it`
        : `FORWARDED to one of ${others.length + 1} endpoints of ${name}`;
    }
    case "reject":
      return `REFUSED at once: ${refusalText(verdict, explanation)}`;
    case "drop":
      return `DROPPED in silence: ${refusalText(verdict, explanation)}`;
    case "unclaimed":
      return `${OUTCOMES[verdict.outcome]}: ${absenceText(verdict, explanation)}`;
  }
}

const OUTCOMES = {
  passes: "NOT HANDLED",
  reject: "REFUSED at once",
  drop: "DROPPED in silence",
} as const;

function refusalText(
  verdict: ExplainedVerdict & { readonly kind: "drop" | "reject" },
  { service, packet, endpoints }: PacketExplanation,
): string {
  const name = service && nameOf(service.key);
  switch (verdict.why) {
    case "no-endpoints":
      return endpoints.length === 0
        ? `${name} has no endpoints`
        : `none of the ${endpoints.length} endpoints of ${name} is ready`;
    case "no-local-endpoints":
      return `${name} has no endpoint on this node, and its traffic policy is Local`;
    case "source-ranges":
      return `the source ranges of ${name} do not admit ${packet.from.address}`;
    case "mode":
      return verdict.detail ?? "";
  }
}

function absenceText(
  verdict: ExplainedVerdict & { readonly kind: "unclaimed" },
  { packet, service }: PacketExplanation,
): string {
  const name = service && nameOf(service.key);
  switch (verdict.why) {
    case "no-service":
      return `no Service has ${socketOf(packet)}`;
    case "own-port":
    case "refused":
      return verdict.detail ?? "";
    case "quarantined":
      return `${name} is IN QUARANTINE, so this address is not in effect`;
    case "unserved-by-mode":
      return `${name} is not served at this address`;
  }
}

/** The display name of a ServicePort. */
function nameOf(key: ServicePortKey): string {
  return key.slice(0, key.lastIndexOf("/"));
}

/** The destination of a packet, e.g. `10.96.0.1:443/TCP`. */
export function socketOf({ to, port, protocol }: PacketExplanation["packet"]): string {
  return `${formatHostPort(to, port)}/${protocol}`;
}

/** The inputs of the text besides the explanation. */
interface StepContext {
  readonly mode: BackendMode;
  readonly shared: SharedPlan;
  readonly kernel: KernelState;
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
  context: StepContext,
): readonly ExplanationStep[] {
  return [
    fromStep(explanation, context),
    toStep(explanation, context),
    ...nearestStep(explanation, context),
    ...sourceRangesStep(explanation),
    ...policyStep(explanation, context),
    ...endpointsStep(explanation, context),
    ...sourceStep(explanation),
    ...affinityStep(explanation, context),
    ...settingsStep(explanation, context),
    ...carriersStep(explanation),
    ...kernelStep(explanation, context),
  ];
}

function fromStep(
  { packet: { from }, origin }: PacketExplanation,
  { shared: { localTraffic } }: StepContext,
): ExplanationStep {
  const say = (text: string): ExplanationStep => ({
    topic: "from",
    text: `${from.address}${text}`,
  });
  if (origin.isFromNode) return say(", this node itself");
  switch (localTraffic.kind) {
    case "none":
      return say(
        ": it is unknown whether it is a pod (neither --cluster-cidr nor another detector is set)",
      );
    case "byCidr":
      return say(
        origin.isFromPod
          ? `, a pod: it is in ${localTraffic.cidr}, the range of pods`
          : `, counts as outside: it is not in ${localTraffic.cidr}, the range of pods`,
      );
    case "byBridge":
    case "byInterfacePrefix": {
      const wanted = localTraffic.kind === "byBridge"
        ? localTraffic.interfaceName
        : `${localTraffic.prefix}…`;
      if (origin.isFromPod) return say(`, a pod of this node: it arrives by ${wanted}`);
      const what = from.kind === "pod" ? "a pod, but it counts as outside" : "counts as outside";
      return say(`, ${what}: it does not arrive by ${wanted}, as pods of this node do`);
    }
  }
}

function toStep(explanation: PacketExplanation, { mode }: StepContext): ExplanationStep {
  const { packet, service, verdict, serviceCidr } = explanation;
  const items: string[] = [];
  for (const { key, why } of service?.otherClaimants ?? []) {
    items.push(`${nameOf(key)} also claims this address and port: ${PRECEDENCE_TEXTS[why]}`);
  }
  if (verdict.kind === "unclaimed") {
    const isInHeadline = verdict.why === "own-port" || verdict.why === "refused";
    if (verdict.detail !== undefined && !isInHeadline) items.push(verdict.detail);
    if (serviceCidr !== undefined && verdict.why === "no-service") {
      items.push(`it is in ${serviceCidr}, from which cluster IPs are taken`);
    }
    items.push(
      verdict.outcomeReason ??
        `mode ${mode} does not handle it: it is routed like any other packet`,
    );
  }
  const owner = service
    ? `the ${ROLE_WORDS[service.role]} of ${nameOf(service.key)}`
    : verdict.kind === "unclaimed" && verdict.why === "own-port"
    ? "an address and port of kube-relay itself"
    : "an address and port that no Service has";
  return { topic: "to", text: `${socketOf(packet)}, ${owner}`, ...(items.length > 0 && { items }) };
}

function* nearestStep(
  { nearMisses, packet }: PacketExplanation,
  { shared }: StepContext,
): Generator<ExplanationStep> {
  if (nearMisses.length === 0) return;
  const items = nearMisses.map((miss) => missItem(miss, { packet, shared }));
  yield { topic: "nearest", text: "possible targets:", items };
}

function* sourceRangesStep(
  { sourceRanges, packet: { from } }: PacketExplanation,
): Generator<ExplanationStep> {
  if (sourceRanges === undefined) return;
  const { ranges, admitted, isException } = sourceRanges;
  const exception = isException ? ", by the exception for packets of the node" : "";
  const text = ranges.length === 0
    ? "loadBalancerSourceRanges has no valid range of this IP family: no client is admitted"
    : `loadBalancerSourceRanges ${
      admitted ? "admit" : "do not admit"
    } ${from.address}${exception}: ` +
      ranges.join(", ");
  yield { topic: "sources", text };
}

function* policyStep(
  { policy }: PacketExplanation,
  { shared: { node } }: StepContext,
): Generator<ExplanationStep> {
  if (policy === undefined) return;
  const { verdict, ofService, isFallback, hints, modeReason } = policy;
  const name = verdict === "internal" ? "internalTrafficPolicy" : "externalTrafficPolicy";
  const where = policy.policy === "Local"
    ? `only endpoints on this node${node.name === "" ? "" : ` (${node.name})`}`
    : "endpoints on every node";
  const text = policy.policy === ofService
    ? `${name} ${ofService}: ${where}`
    : `${name} ${ofService} applies to outside clients only, not to pods and the node: ${where}`;
  const items = [
    ...(modeReason === undefined ? [] : [modeReason]),
    ...(hints === undefined ? [] : [
      `all ready endpoints have hints, so only those for ${hints} ${
        hints === "node" ? node.name : node.zone
      } are used`,
    ]),
    ...(isFallback
      ? ["no endpoint is ready: those that are terminating and still serve are used instead"]
      : []),
  ];
  yield { topic: "policy", text, ...(items.length > 0 && { items }) };
}

function* endpointsStep(
  { endpoints, verdict }: PacketExplanation,
  { shared: { node } }: StepContext,
): Generator<ExplanationStep> {
  const isReported = verdict.kind === "forward" ||
    (verdict.kind !== "unclaimed" && verdict.why !== "source-ranges");
  if (!isReported || endpoints.length === 0) return;
  const eligible = endpoints.filter((endpoint) => endpoint.eligible);
  const others = endpoints.filter((endpoint) => !endpoint.eligible);
  const items = [eligible, others].flatMap((list) => [
    ...list.slice(0, MOST_ENDPOINTS).map((endpoint) => endpointItem(endpoint, node)),
    ...(list.length > MOST_ENDPOINTS
      ? [`${list === eligible ? "+" : "-"} and ${list.length - MOST_ENDPOINTS} more`]
      : []),
  ]);
  const text = `${eligible.length} of ${endpoints.length} may get it`;
  yield { topic: "endpoints", text, items };
}

function* sourceStep({ source, endpoints, packet }: PacketExplanation): Generator<ExplanationStep> {
  if (source === undefined) return;
  const items = source.rewritten !== "own-packets"
    ? []
    : endpoints.filter(({ seesNode }) => seesNode).map(({ key }) =>
      `${key} would get its own packet (hairpin): there the node's address takes its place`
    );
  const text = sourceText(source, packet.from.address);
  yield { topic: "source", text, ...(items.length > 0 && { items }) };
}

function* affinityStep(
  { affinity, edge, verdict }: PacketExplanation,
  { mode }: StepContext,
): Generator<ExplanationStep> {
  if (verdict.kind !== "forward") return;
  if (affinity === undefined) {
    const isHashed = MODE_TRAITS[mode].forwardsItself && edge?.balance === "source-hash";
    const text = isHashed
      ? "by source-hash: a client keeps its endpoint while the endpoint exists"
      : "none: every new connection may get another endpoint";
    yield { topic: "affinity", text };
    return;
  }
  const { timeoutSeconds, entry, unknown } = affinity;
  const items: string[] = [];
  if (entry === "none") items.push("no endpoint is remembered for this client: any may be chosen");
  else if (entry !== undefined) {
    const left = entry.expiresInSeconds;
    const until = left === undefined ? "" : `, for another ${left} s`;
    items.push(`this client is bound to ${entry.endpoint}${until}`);
  }
  if (unknown !== undefined) items.push(`the endpoint of this client is unknown: ${unknown}`);
  const text =
    `ClientIP: a client keeps its endpoint until it has been idle for ${timeoutSeconds} s`;
  yield { topic: "affinity", text, ...(items.length > 0 && { items }) };
}

function* settingsStep(
  { edge }: PacketExplanation,
  { mode }: StepContext,
): Generator<ExplanationStep> {
  if (edge === undefined) return;
  const text = MODE_TRAITS[mode].forwardsItself
    ? "by annotations of the Service:"
    : `mode ${mode} does not apply these annotations of the Service:`;
  yield { topic: "settings", text, items: describeEdgeSettings(edge) };
}

function* carriersStep({ carriers }: PacketExplanation): Generator<ExplanationStep> {
  if (carriers.length === 0) return;
  const items = carriers.map(carrierItem);
  yield { topic: "carriers", text: "in this order:", items };
}

/** Includes the name only if the text does not contain it. */
function carrierItem({ object, name, text }: PacketCarrier): string {
  if (text.startsWith(`${name} `)) return `${object} ${name}: ${text.slice(name.length + 1)}`;
  const words = name.split(" ");
  const last = words.pop() ?? "";
  if (!text.includes(last)) return `${object} ${name}: ${text}`;
  return words.length === 0 ? `${object}: ${text}` : `${object} (${words.join(" ")}): ${text}`;
}

function* kernelStep(
  { carriers }: PacketExplanation,
  { kernel, mode }: StepContext,
): Generator<ExplanationStep> {
  if (carriers.length === 0) return;
  if (kernel.kind === "not asked") {
    yield { topic: "kernel", text: `not asked: ${kernel.why}` };
    return;
  }
  const { differences } = kernel;
  if (differences.length === 0) {
    const text = MODE_TRAITS[mode].forwardsItself
      ? "looked just now: the sockets are as they should be"
      : "asked just now: it has all of it";
    yield { topic: "kernel", text };
    return;
  }
  const count = differences.length === 1 ? "1 difference" : `${differences.length} differences`;
  yield {
    topic: "kernel",
    text: `asked just now: ${count} from what this Service needs; 'kube-relay diff' shows more`,
    items: differences.map(differenceText),
  };
}

function differenceText({ kind, object, name, wanted, found }: DataPlaneDifference): string {
  const both = wanted !== undefined && found !== undefined;
  const text = both ? `wanted ${wanted}; found ${found}` : wanted ?? found ?? "";
  return `${kind.toUpperCase()} ${object} ${name}: ${text}`;
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

/** Whether the endpoints see the sender's address, and why. */
function sourceText(
  { rewritten, reason, detail }: ExplainedSource,
  sender: IpAddress,
): string {
  const why = detail ?? REASONS[reason];
  return rewritten === "always"
    ? `CHANGES from ${sender} to an address of the node: ${why}`
    : `stays ${sender}: ${why}`;
}

/** One endpoint: `+` may receive the packet, `-` may not, with the reason. */
function endpointItem(endpoint: ExplainedEndpoint, node: NodeTopology): string {
  const { key, eligible } = endpoint;
  const place = placeText(endpoint);
  if (!eligible) return `- ${key} (${place}): ${exclusionText(endpoint, node)}`;
  return `+ ${key} (${place}${endpoint.terminating ? ", terminating" : ""})`;
}

function placeText({ isLocal, nodeName }: ExplainedEndpoint): string {
  if (isLocal) return "this node";
  return nodeName === undefined ? "no node named" : `on ${nodeName}`;
}

function exclusionText(endpoint: ExplainedEndpoint, { name, zone }: NodeTopology): string {
  const { exclusion, leftOut, terminating, serving, nodeHints = [], zoneHints = [] } = endpoint;
  if (leftOut !== undefined) return `left out: ${leftOut}`;
  switch (exclusion) {
    case undefined:
      return "would be used";
    case "other-node":
      return "not on this node, and the policy is Local";
    case "node-hint":
      return `hinted for node ${nodeHints.join(", ")}, not for ${name}`;
    case "zone-hint":
      return `hinted for zone ${zoneHints.join(", ")}; this node is in ${zone}`;
    case "not-ready":
      if (terminating && serving) return "terminating, and others are ready";
      return terminating ? "terminating" : "not ready";
    case "not-serving":
      return terminating ? "terminating, and no longer serving" : "not ready";
    default:
      return assertNever(exclusion);
  }
}

const UNSERVED: Readonly<Record<UnservedReason, string>> = {
  ExternalName: "it is an ExternalName",
  headless: "it is headless",
  "other proxy": "its label service.kubernetes.io/service-proxy-name gives it to another proxy",
  "external IP": "as external IP, which is not allowed here (feature gate AllowServiceExternalIPs)",
  "ipMode Proxy": "as load balancer address of ipMode Proxy, which belongs to the load balancer",
  "no usable port": "it has no port that can be used",
};

/** Describes one near miss. */
function missItem(
  { kind, service, address, port, protocol, reason }: NearMiss,
  { packet, shared }: {
    readonly packet: PacketExplanation["packet"];
    readonly shared: Pick<SharedPlan, "nodePortAddresses">;
  },
): string {
  const name = kind === "unserved" ? service : service.slice(0, service.lastIndexOf("/"));
  switch (kind) {
    case "endpoint":
      return `${
        formatHostPort(packet.to, packet.port)
      } is an endpoint of ${name} itself: what is ` +
        "sent straight to a pod passes by every Service";
    case "own-port":
      return `${name} asks for this address and port, which stay with kube-relay`;
    case "refused":
      return `${name} asks for this address, which it may not have on this node`;
    case "other-port":
      return `${name} has this address, on port ${port}/${protocol}`;
    case "target-port":
      return `${name} has this address, on port ${port}/${protocol}; ${packet.port} is the port of ` +
        "its endpoints";
    case "node-port": {
      const served = shared.nodePortAddresses.slice(0, 4).join(", ") || "no address";
      return `${packet.port}/${protocol} is the node port of ${name}; node ports are on ${served}`;
    }
    case "other-address":
      return `${name} has port ${port}/${protocol} on ${address}`;
    case "unserved":
      return `${name} has this address and is not served: ${UNSERVED[reason ?? "no usable port"]}`;
    default:
      return assertNever(kind);
  }
}
