/**
 * Explains a packet by a plan. It decides nothing: the plan has decided, and the deciding code is
 * asked again where the plan contains no reason.
 *
 * @module
 */
import { cidrContains } from "../net/cidr.ts";
import { formatHostPort } from "../net/port.ts";
import { type Backend, MODE_TRAITS } from "./backend.ts";
import type { Quarantined } from "./data_plane.ts";
import type { Endpoint } from "./endpoint.ts";
import { type Frontend, hairpinEndpoints } from "./frontend.ts";
import { isFromPod } from "./local_traffic.ts";
import type { Packet } from "./packet.ts";
import type {
  ExplainedEndpoint,
  ExplainedOrigin,
  ExplainedSource,
  ExplainedVerdict,
  ModeDeviations,
  NearMiss,
  PacketExplanation,
} from "./packet_explanation.ts";
import { findHit, findWithheld, nearMisses, type PacketHit, withoutServed } from "./packet_hit.ts";
import type { ProxyPlan } from "./proxy_plan.ts";
import type { TrafficPolicy } from "./service_port.ts";
import { exclusionOf, isAdmitted, selectEndpoints } from "./service_plan.ts";
import { assertNever, type Verdict } from "./verdict.ts";

/**
 * Explains the first packet of a connection or flow, with the deviations of the mode and the objects
 * that carry the packet. `quarantined` are ServicePorts that are not in effect, `unserved` Services of
 * the address that nothing is planned for.
 */
export function explainPacket(
  plan: ProxyPlan,
  packet: Packet,
  backend: Pick<Backend, "explain" | "mode">,
  { quarantined = [], unserved = [] }: {
    readonly quarantined?: readonly Quarantined[];
    readonly unserved?: readonly NearMiss[];
  } = {},
): PacketExplanation {
  const { bindsAddresses } = MODE_TRAITS[backend.mode];
  const hit = findHit(plan, packet);
  const withheld = hit === undefined ? findWithheld(plan, packet) : undefined;
  const decide = (deviations: ModeDeviations): PacketExplanation => {
    const absence = hit ? absenceOf(hit, packet, quarantined, deviations) : withheld?.absence;
    return hit && absence === undefined
      ? forwarded(plan, packet, hit, deviations, bindsAddresses)
      : unclaimed(plan, packet, hit, absence ?? { why: "no-service" }, deviations);
  };
  const { deviations = {}, carriers } = backend.explain(plan, decide({}), hit);
  const explained = decide(deviations);
  const eligible = new Set<string>(
    explained.endpoints.filter(({ eligible }) => eligible).map(({ key }) => key),
  );
  return {
    ...explained,
    nearMisses: hit ? [] : [
      ...withheld?.claimants ?? [],
      ...withoutServed(unserved, nearMisses(plan, packet)),
    ],
    carriers: carriers
      .filter(({ endpoint }) => endpoint === undefined || eligible.has(endpoint))
      .map(({ object, name, text }) => ({ object, name, text })),
  };
}

/** Explains a packet to a frontend that is in effect. */
function forwarded(
  plan: ProxyPlan,
  packet: Packet,
  hit: PacketHit,
  deviations: ModeDeviations,
  bindsAddresses: boolean,
): PacketExplanation {
  const { service, frontend } = hit;
  const origin = originOf(plan, packet);
  const isInside = isFromCluster(origin) && deviations.asOutsider === undefined;
  const planned = frontend.verdict[isInside ? "internal" : "external"];
  const sourceRanges = sourceRangesOf(plan, packet, frontend, bindsAddresses);
  const verdict = verdictOf(planned, sourceRanges, deviations);
  const isForwarded = verdict.kind === "forward";
  const source = explainSource(frontend, origin, deviations);
  const name = frontend.role === "ClusterIP"
    ? "internal"
    : isInside
    ? "externalFromCluster"
    : "external";
  const ofService =
    service[name === "internal" ? "internalTrafficPolicy" : "externalTrafficPolicy"];
  const policy: TrafficPolicy = name === "externalFromCluster" ? "Cluster" : ofService;
  const selection = selectEndpoints(service.endpoints, policy, plan.shared.node);
  const { hints, isFallback } = selection;
  const picked = new Set(planned.kind === "forward" ? planned.endpoints.map(({ key }) => key) : []);
  const seesNode = ({ address }: Endpoint) =>
    source.rewritten === "always" ||
    (source.rewritten === "own-packets" && address === packet.from.address &&
      hairpinEndpoints(service).some((each) => each.address === address));
  const { affinityTimeoutSeconds: timeoutSeconds } = service;
  return {
    packet,
    origin,
    service: serviceOf(hit),
    nearMisses: [],
    ...(sourceRanges && { sourceRanges }),
    policy: {
      verdict: name,
      policy,
      ofService,
      isFallback: isFallback && picked.size > 0,
      ...(hints && { hints }),
      ...(deviations.asOutsider !== undefined && { modeReason: deviations.asOutsider }),
    },
    verdict,
    endpoints: service.endpoints.map((endpoint): ExplainedEndpoint => {
      const { address: _address, port: _port, ...facts } = endpoint;
      const isPicked = picked.has(endpoint.key);
      const exclusion = isPicked ? undefined : exclusionOf(endpoint, selection);
      const leftOut = isPicked ? deviations.leftOut?.get(endpoint.key) : undefined;
      const eligible = isPicked && leftOut === undefined && isForwarded;
      return {
        ...facts,
        eligible,
        ...(exclusion && { exclusion }),
        ...(leftOut !== undefined && { leftOut }),
        ...(eligible && { seesNode: seesNode(endpoint) }),
      };
    }),
    ...(isForwarded && { source }),
    ...(isForwarded && timeoutSeconds !== undefined && { affinity: { timeoutSeconds } }),
    ...(service.edge && { edge: service.edge }),
    carriers: [],
  };
}

/** Explains a packet to an address and port that no ServicePort has in effect. */
function unclaimed(
  plan: ProxyPlan,
  packet: Packet,
  hit: PacketHit | undefined,
  absence: Pick<ExplainedVerdict & { kind: "unclaimed" }, "detail" | "why">,
  { outcome }: ModeDeviations,
): PacketExplanation {
  const serviceCidr = plan.shared.serviceCidrs.find((cidr) => cidrContains(cidr, packet.to));
  return {
    packet,
    origin: originOf(plan, packet),
    ...(hit && { service: serviceOf(hit) }),
    nearMisses: [],
    ...(serviceCidr !== undefined && { serviceCidr }),
    verdict: {
      kind: "unclaimed",
      ...absence,
      outcome: outcome?.kind ?? "passes",
      ...(outcome && { outcomeReason: outcome.why }),
    },
    endpoints: [],
    carriers: [],
  };
}

function originOf({ shared: { localTraffic } }: ProxyPlan, { from }: Packet): ExplainedOrigin {
  return { isFromPod: isFromPod(localTraffic, from), isFromNode: from.kind === "node" };
}

/** Whether a sender counts as inside the cluster: external policy Local does not apply to it. */
export function isFromCluster({ isFromPod, isFromNode }: ExplainedOrigin): boolean {
  return isFromPod === true || isFromNode;
}

/** Returns the reason why nothing is in effect for a ServicePort that was found. */
function absenceOf(
  { service: { key } }: PacketHit,
  { to, port, protocol }: Packet,
  quarantined: readonly Quarantined[],
  { unserved }: ModeDeviations,
) {
  if (unserved !== undefined) return { why: "unserved-by-mode", detail: unserved } as const;
  const socket = `${formatHostPort(to, port)}/${protocol}`;
  const found = quarantined.find((each) =>
    each.key === key && (each.address === undefined || each.address === socket)
  );
  return found && { why: "quarantined", detail: found.reason } as const;
}

function serviceOf({ service: { key }, frontend: { role }, otherClaimants }: PacketHit) {
  return { key, role, otherClaimants };
}

function verdictOf(
  planned: Verdict,
  sourceRanges: PacketExplanation["sourceRanges"],
  { refusal }: ModeDeviations,
): ExplainedVerdict {
  if (refusal) return { kind: refusal.kind, why: "mode", detail: refusal.detail };
  if (sourceRanges?.admitted === false) return { kind: "drop", why: "source-ranges" };
  const { kind } = planned;
  if (kind === "forward") return { kind };
  return { kind, why: kind === "reject" ? "no-endpoints" : "no-local-endpoints" };
}

function sourceRangesOf(
  { shared: { interfaceAddresses } }: ProxyPlan,
  { from, to }: Packet,
  { admitted: sources }: Frontend,
  bindsAddresses: boolean,
): PacketExplanation["sourceRanges"] {
  if (sources === undefined) return undefined;
  // For an address that is bound here, the kernel chooses that address itself as the source.
  const isBound = bindsAddresses && from.kind === "node" && !interfaceAddresses.includes(to);
  const admitted = isAdmitted(sources, isBound ? to : from.address);
  const isException = admitted !== sources.cover.contains(from.address);
  return { ranges: sources.ranges, admitted, ...(isException && { isException }) };
}

/** Whether the source address changes, apart from endpoints that receive their own packets. */
function explainSource(
  { masquerade, role }: Frontend,
  { isFromPod, isFromNode }: ExplainedOrigin,
  { source }: ModeDeviations,
): ExplainedSource {
  if (source) return { rewritten: source.rewritten, reason: "mode", detail: source.detail };
  switch (masquerade) {
    case "all":
      return {
        rewritten: "always",
        reason: role === "ClusterIP" ? "masquerade-all" : "cluster-policy",
      };
    case "from-node":
      return isFromNode && isFromPod !== true
        ? { rewritten: "always", reason: "from-node" }
        : { rewritten: "own-packets", reason: isFromPod === true ? "pod" : "keeps-client" };
    case "off-cluster":
      if (isFromPod === true) return { rewritten: "own-packets", reason: "pod" };
      return { rewritten: "always", reason: isFromNode ? "from-node" : "off-cluster" };
    case "none":
      return { rewritten: "own-packets", reason: "no-detector" };
    default:
      return assertNever(masquerade);
  }
}
