/**
 * Explains a packet by a plan. It decides nothing: the plan has decided, and the deciding code is
 * asked again where the plan contains no reason.
 *
 * @module
 */
import { cidrContains } from "../net/cidr.ts";
import { formatHostPort } from "../net/port.ts";
import { isAdmitted } from "./admitted_sources.ts";
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
import { exclusionOf, selectEndpoints } from "./topology.ts";
import { assertNever, type Verdict } from "./verdict.ts";

/** The context besides the plan. */
export interface ExplainOptions {
  /** ServicePorts that are not in effect. @default {nothing} */
  readonly quarantined?: readonly Quarantined[];
  /** The differences between the mode and the plan. @default {none} */
  readonly deviations?: ModeDeviations;
  /** Whether the mode binds Service addresses to the node. @default {false} */
  readonly bindsAddresses?: boolean;
  /** Services of the address that nothing is planned for. @default {none} */
  readonly unserved?: readonly NearMiss[];
  /** Whether to omit near misses, which take as long as all the rest. */
  readonly isDraft?: boolean;
}

/** The reason why nothing is in effect at an address and port. */
type Absence = Pick<ExplainedVerdict & { kind: "unclaimed" }, "detail" | "why">;

/** Explains the first packet of a connection or flow. */
export function explainPacket(
  plan: ProxyPlan,
  packet: Packet,
  options: ExplainOptions = {},
  hit: PacketHit | undefined = findHit(plan, packet),
): PacketExplanation {
  const { deviations = {}, bindsAddresses = false } = options;
  const origin: ExplainedOrigin = {
    isFromPod: isFromPod(plan.shared.localTraffic, packet.from),
    isFromNode: packet.from.kind === "node",
  };
  const absence = hit && absenceOf(hit, packet, options);
  if (hit === undefined || absence !== undefined) {
    return unclaimed(plan, packet, { origin, hit, absence, options });
  }
  const { service, frontend } = hit;
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

/**
 * As {@linkcode explainPacket}, with the deviations of the mode and the objects that carry the
 * packet.
 */
export function explainInMode(
  plan: ProxyPlan,
  packet: Packet,
  { backend, ...rest }: Pick<ExplainOptions, "quarantined" | "unserved"> & {
    readonly backend: Pick<Backend, "explain" | "mode">;
  },
): PacketExplanation {
  const { bindsAddresses } = MODE_TRAITS[backend.mode];
  const options = { ...rest, bindsAddresses };
  const hit = findHit(plan, packet);
  const draft = explainPacket(plan, packet, { ...options, isDraft: true }, hit);
  const { deviations, carriers } = backend.explain(plan, draft, hit);
  const known = { ...options, ...(deviations && { deviations }) };
  const explained = explainPacket(plan, packet, known, hit);
  const eligible = new Set<string>(
    explained.endpoints.filter(({ eligible }) => eligible).map(({ key }) => key),
  );
  return {
    ...explained,
    carriers: carriers
      .filter(({ endpoint }) => endpoint === undefined || eligible.has(endpoint))
      .map(({ object, name, text }) => ({ object, name, text })),
  };
}

/** Whether a sender counts as inside the cluster: external policy Local does not apply to it. */
export function isFromCluster({ isFromPod, isFromNode }: ExplainedOrigin): boolean {
  return isFromPod === true || isFromNode;
}

/** Returns the reason why nothing is in effect for a ServicePort that was found. */
function absenceOf(
  { service: { key } }: PacketHit,
  { to, port, protocol }: Packet,
  { quarantined = [], deviations }: ExplainOptions,
): Absence | undefined {
  if (deviations?.unserved !== undefined) {
    return { why: "unserved-by-mode", detail: deviations.unserved };
  }
  const socket = `${formatHostPort(to, port)}/${protocol}`;
  const found = quarantined.find((each) =>
    each.key === key && (each.address === undefined || each.address === socket)
  );
  return found && { why: "quarantined", detail: found.reason };
}

/** Explains a packet to an address and port that no ServicePort has in effect. */
function unclaimed(
  plan: ProxyPlan,
  packet: Packet,
  { origin, hit, absence, options: { deviations, unserved = [], isDraft } }: {
    readonly origin: ExplainedOrigin;
    readonly hit: PacketHit | undefined;
    readonly absence: Absence | undefined;
    readonly options: ExplainOptions;
  },
): PacketExplanation {
  const withheld = hit === undefined ? findWithheld(plan, packet) : undefined;
  const serviceCidr = plan.shared.serviceCidrs.find((cidr) => cidrContains(cidr, packet.to));
  const { outcome } = deviations ?? {};
  return {
    packet,
    origin,
    ...(hit && { service: serviceOf(hit) }),
    nearMisses: hit === undefined && !isDraft
      ? [
        ...withheld?.claimants ?? [],
        ...withoutServed(unserved, nearMisses(plan, packet)),
      ]
      : [],
    ...(serviceCidr !== undefined && { serviceCidr }),
    verdict: {
      kind: "unclaimed",
      ...(absence ?? withheld?.absence ?? { why: "no-service" }),
      outcome: outcome?.kind ?? "passes",
      ...(outcome && { outcomeReason: outcome.why }),
    },
    endpoints: [],
    carriers: [],
  };
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
