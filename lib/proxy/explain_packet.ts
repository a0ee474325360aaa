/**
 * Explains a packet by a plan. It decides nothing: the plan has decided, and the deciding code is
 * asked again where the plan contains no reason.
 *
 * @module
 */
import { cidrContains } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { formatHostPort } from "../net/port.ts";
import { isAdmitted } from "./admitted_sources.ts";
import { type Backend, MODE_TRAITS } from "./backend.ts";
import type { Quarantined } from "./data_plane.ts";
import type { Endpoint } from "./endpoint.ts";
import { hairpinEndpoints } from "./frontend.ts";
import { isFromPod } from "./local_traffic.ts";
import type { Packet } from "./packet.ts";
import type {
  ExplainedEndpoint,
  ExplainedOrigin,
  ExplainedPolicy,
  ExplainedSource,
  ExplainedVerdict,
  ModeDeviations,
  NearMiss,
  PacketExplanation,
  VerdictName,
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

interface Passage {
  readonly plan: ProxyPlan;
  readonly packet: Packet;
  readonly origin: ExplainedOrigin;
  readonly hit: PacketHit;
  readonly options: ExplainOptions;
}

/** Explains the first packet of a connection or flow. */
export function explainPacket(
  plan: ProxyPlan,
  packet: Packet,
  options: ExplainOptions = {},
  hit: PacketHit | undefined = findHit(plan, packet),
): PacketExplanation {
  const origin: ExplainedOrigin = {
    isFromPod: isFromPod(plan.shared.localTraffic, packet.from),
    isFromNode: packet.from.kind === "node",
  };
  const absence = hit && absenceOf(hit, packet, options);
  if (hit === undefined || absence !== undefined) {
    const own = hit === undefined ? findWithheld(plan, packet) : undefined;
    const why = absence ?? own?.absence ?? { why: "no-service" as const };
    return unclaimed({ plan, packet, origin, hit, options, claimants: own?.claimants ?? [] }, why);
  }
  return claimed({ plan, packet, origin, hit, options });
}

interface ExplainInModeOptions extends Pick<ExplainOptions, "quarantined" | "unserved"> {
  readonly backend: Pick<Backend, "explain" | "mode">;
}

/**
 * As {@linkcode explainPacket}, with the deviations of the mode and the objects that carry the
 * packet.
 */
export function explainInMode(
  plan: ProxyPlan,
  packet: Packet,
  { backend, ...rest }: ExplainInModeOptions,
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
): Pick<ExplainedVerdict & { kind: "unclaimed" }, "detail" | "why"> | undefined {
  if (deviations?.unserved !== undefined) {
    return { why: "unserved-by-mode", detail: deviations.unserved };
  }
  const socket = `${formatHostPort(to, port)}/${protocol}`;
  const found = quarantined.find((each) =>
    each.key === key && (each.address === undefined || each.address === socket)
  );
  return found && { why: "quarantined", detail: found.reason };
}

function unclaimed(
  { plan, packet, origin, hit, options: { deviations, unserved = [], isDraft }, claimants }:
    & Omit<Passage, "hit">
    & { readonly hit: PacketHit | undefined; readonly claimants: readonly NearMiss[] },
  absence: Pick<ExplainedVerdict & { kind: "unclaimed" }, "detail" | "why">,
): PacketExplanation {
  const serviceCidr = plan.shared.serviceCidrs.find((cidr) => cidrContains(cidr, packet.to));
  const { outcome } = deviations ?? {};
  return {
    packet,
    origin,
    ...(hit && { service: serviceOf(hit) }),
    nearMisses: hit === undefined && !isDraft
      ? [...claimants, ...withoutServed(unserved, nearMisses(plan, packet))]
      : [],
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

function claimed(passage: Passage): PacketExplanation {
  const { packet, origin, hit, options: { deviations } } = passage;
  const { service } = hit;
  const name = verdictName(passage);
  const verdict = verdictOf(passage);
  const { policy, endpoints } = endpointsOf(passage, { name, verdict });
  const { affinityTimeoutSeconds: timeoutSeconds } = service;
  const isForwarded = verdict.kind === "forward";
  const ranges = sourceRangesOf(passage);
  return {
    packet,
    origin,
    service: serviceOf(hit),
    nearMisses: [],
    ...(ranges && { sourceRanges: ranges }),
    policy: {
      ...policy,
      ...(deviations?.asOutsider !== undefined && { modeReason: deviations.asOutsider }),
    },
    verdict,
    endpoints,
    ...(isForwarded && { source: explainSource(hit, origin, deviations) }),
    ...(isForwarded && timeoutSeconds !== undefined && { affinity: { timeoutSeconds } }),
    ...(service.edge && { edge: service.edge }),
    carriers: [],
  };
}

function serviceOf({ service: { key }, frontend: { role }, otherClaimants }: PacketHit) {
  return { key, role, otherClaimants };
}

/** Whether the sender gets the verdict for clients in the cluster. */
function isInside({ origin, options }: Passage): boolean {
  return isFromCluster(origin) && options.deviations?.asOutsider === undefined;
}

/** The verdict of the plan that applies to the sender. */
function verdictName(passage: Passage): VerdictName {
  if (passage.hit.frontend.role === "ClusterIP") return "internal";
  return isInside(passage) ? "externalFromCluster" : "external";
}

function plannedVerdict(passage: Passage): Verdict {
  return passage.hit.frontend.verdict[isInside(passage) ? "internal" : "external"];
}

function verdictOf(passage: Passage): ExplainedVerdict {
  const { refusal } = passage.options.deviations ?? {};
  if (refusal) return { kind: refusal.kind, why: "mode", detail: refusal.detail };
  if (sourceRangesOf(passage)?.admitted === false) return { kind: "drop", why: "source-ranges" };
  const { kind } = plannedVerdict(passage);
  switch (kind) {
    case "reject":
      return { kind, why: "no-endpoints" };
    case "drop":
      return { kind, why: "no-local-endpoints" };
    case "forward":
      return { kind };
  }
}

function sourceRangesOf(
  { plan, packet: { from, to }, hit: { frontend }, options }: Passage,
): PacketExplanation["sourceRanges"] {
  const { admitted: sources } = frontend;
  if (sources === undefined) return undefined;
  const { ranges, cover } = sources;
  // For an address that is bound here, the kernel chooses that address itself as the source.
  const isBound = options.bindsAddresses && from.kind === "node" &&
    !plan.shared.interfaceAddresses.includes(to);
  const admitted = isAdmitted(sources, isBound ? to : from.address);
  const isException = admitted !== cover.contains(from.address);
  return { ranges, admitted, ...(isException && { isException }) };
}

/** Every endpoint of the ServicePort, those that the verdict may pick among them. */
function endpointsOf(
  passage: Passage,
  { name, verdict }: { readonly name: VerdictName; readonly verdict: ExplainedVerdict },
): { readonly policy: ExplainedPolicy; readonly endpoints: readonly ExplainedEndpoint[] } {
  const { plan: { shared }, packet, hit, origin, options } = passage;
  const { service } = hit;
  const { internalTrafficPolicy, externalTrafficPolicy } = service;
  const ofService = name === "internal" ? internalTrafficPolicy : externalTrafficPolicy;
  const policy: TrafficPolicy = name === "externalFromCluster" ? "Cluster" : ofService;
  const selection = selectEndpoints(service.endpoints, policy, shared.node);
  const planned = plannedVerdict(passage);
  const picked = new Set(
    planned.kind === "forward" ? planned.endpoints.map(({ key }) => key) : [],
  );
  const source = explainSource(hit, origin, options.deviations);
  const endpoints = service.endpoints.map((endpoint): ExplainedEndpoint => {
    const isPicked = picked.has(endpoint.key);
    const exclusion = isPicked ? undefined : exclusionOf(endpoint, selection);
    const leftOut = isPicked ? options.deviations?.leftOut?.get(endpoint.key) : undefined;
    const eligible = isPicked && leftOut === undefined && verdict.kind === "forward";
    return {
      ...factsOf(endpoint),
      eligible,
      ...(exclusion && { exclusion }),
      ...(leftOut !== undefined && { leftOut }),
      ...(eligible && {
        seesNode: isSourceRewritten({ service, endpoint, source, sender: packet.from.address }),
      }),
    };
  });
  const { hints, isFallback } = selection;
  return {
    policy: {
      verdict: name,
      policy,
      ofService,
      isFallback: isFallback && picked.size > 0,
      ...(hints && { hints }),
    },
    endpoints,
  };
}

function factsOf(endpoint: Endpoint): Omit<ExplainedEndpoint, "eligible" | "exclusion"> {
  const { key, isLocal, nodeName, ready, serving, terminating, zoneHints, nodeHints } = endpoint;
  return {
    key,
    isLocal,
    ...(nodeName !== undefined && { nodeName }),
    ready,
    serving,
    terminating,
    ...(zoneHints && { zoneHints }),
    ...(nodeHints && { nodeHints }),
  };
}

/** Whether the source address changes, apart from endpoints that receive their own packets. */
function explainSource(
  { frontend: { masquerade, role } }: Pick<PacketHit, "frontend">,
  { isFromPod, isFromNode }: ExplainedOrigin,
  deviations: ModeDeviations = {},
): ExplainedSource {
  const { source } = deviations;
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

/** Whether one endpoint sees an address of the node instead of the sender's. */
function isSourceRewritten(
  { service, endpoint, source, sender }: Pick<PacketHit, "service"> & {
    readonly endpoint: Endpoint;
    readonly source: ExplainedSource;
    readonly sender: IpAddress;
  },
): boolean {
  if (source.rewritten !== "own-packets") return source.rewritten === "always";
  return endpoint.address === sender &&
    hairpinEndpoints(service).some(({ address }) => address === sender);
}
