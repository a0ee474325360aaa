/**
 * Explains a packet by a plan. It decides nothing: the plan has decided, and the deciding code is
 * asked again where the plan contains no reason.
 *
 * @module
 */
import type { Service } from "../api/kinds/service.ts";
import { SKIP_LOAD_BALANCER_IPS_ANNOTATION } from "../api/kube_router_annotations.ts";
import { cidrContains } from "../net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import { formatHostPort } from "../net/port.ts";
import { ANY_NAME, findByServerName } from "../net/server_name.ts";
import { type Backend, MODE_TRAITS } from "./backend.ts";
import type { Quarantined } from "./data_plane.ts";
import type { Endpoint } from "./endpoint.ts";
import { type Frontend, frontendsOf, hairpinEndpoints, nodePortAddressesOf } from "./frontend.ts";
import { withheldText } from "./frontend_owners.ts";
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
  PacketHit,
  UnservedReason,
} from "./packet_explanation.ts";
import type { ProxyPlan, SharedPlan } from "./proxy_plan.ts";
import {
  type ContestedFrontend,
  exclusionOf,
  isAdmitted,
  type RefusedName,
  selectEndpoints,
  type ServicePlan,
} from "./service_plan.ts";
import { type TrafficPolicy, unproxiedReason } from "./service_port.ts";
import { namespacedNameOf, serviceKey } from "./service_port_name.ts";
import { assertNever, type Verdict } from "./verdict.ts";

/** The destination of a packet. */
type PacketTarget = Pick<Packet, "to" | "port" | "protocol" | "serverName">;

type Absence = Pick<ExplainedVerdict & { kind: "unclaimed" }, "detail" | "why">;

/** Maximum number of near misses of each kind. */
const MOST_MISSES = 4;

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
  const missed = hit === undefined ? nearMisses(plan, packet, unserved) : undefined;
  const decide = (deviations: ModeDeviations): PacketExplanation => {
    const absence = hit ? absenceOf(hit, packet, quarantined, deviations) : missed?.absence;
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
    nearMisses: missed?.misses ?? [],
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
    ...(service.annotations && { annotations: service.annotations }),
    carriers: [],
  };
}

/** Explains a packet to an address and port that no ServicePort has in effect. */
function unclaimed(
  plan: ProxyPlan,
  packet: Packet,
  hit: PacketHit | undefined,
  absence: Absence,
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
): Absence | undefined {
  if (unserved !== undefined) return { why: "unserved-by-mode", detail: unserved };
  const socket = `${formatHostPort(to, port)}/${protocol}`;
  const found = quarantined.find((each) =>
    each.key === key && (each.address === undefined || each.address === socket)
  );
  return found && { why: "quarantined", detail: found.reason };
}

function serviceOf({ service: { key }, frontend: { role }, otherClaimants, names }: PacketHit) {
  return { key, role, otherClaimants, ...(names && { names }) };
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

/** Finds the owner of the address and port. Walks over all ServicePorts: about 1 ms for 10,000. */
export function findHit(
  { services, shared }: ProxyPlan,
  target: PacketTarget,
): PacketHit | undefined {
  let owner: Pick<PacketHit, "service" | "frontend"> | undefined;
  const byName = new Map<string, Pick<PacketHit, "service" | "frontend">>();
  const otherClaimants: PacketHit["otherClaimants"][number][] = [];
  for (const service of services.values()) {
    const { why } = contestedAt(service, target, shared) ?? refusedNameAt(service, target) ?? {};
    if (why !== undefined) otherClaimants.push({ key: service.key, why });
    const frontend = frontendAt(service, target, shared);
    if (frontend === undefined) continue;
    owner = { service, frontend };
    for (const name of frontend.names ?? []) byName.set(name, owner);
  }
  if (owner === undefined || byName.size === 0) return owner && { ...owner, otherClaimants };
  const names = [...byName].map(([name, { service: { key } }]) => ({ name, key }))
    .sort((one, other) => one.name < other.name ? -1 : 1);
  const found = findByServerName(byName, target.serverName);
  return { ...found ?? { ...owner, isNameless: true }, otherClaimants, names };
}

/** The claim of a ServicePort to the server name of a packet that another one has. */
function refusedNameAt(
  { shared = [], port, protocol }: ServicePlan,
  target: PacketTarget,
): RefusedName | undefined {
  if (port !== target.port || protocol !== target.protocol) return undefined;
  return shared.find(({ address }) => address === target.to)?.refused
    ?.find(({ name }) => name === (target.serverName ?? ANY_NAME));
}

/** The frontend of a ServicePort at an address and port. */
function frontendAt(
  service: ServicePlan,
  { to, port, protocol }: PacketTarget,
  { nodePortAddresses }: Pick<SharedPlan, "nodePortAddresses">,
): Frontend | undefined {
  if (service.protocol !== protocol) return undefined;
  if (service.nodePort !== port && !hasAddress(service, to)) return undefined;
  const isNodePortAddress = nodePortAddresses.includes(to) &&
    nodePortAddressesOf(service, [to]).length > 0;
  return frontendsOf(service).find((frontend) =>
    frontend.port === port &&
    (frontend.address === undefined ? isNodePortAddress : frontend.address === to)
  );
}

/** The frontend that a ServicePort claims at an address and port, and does not own. */
function contestedAt(
  { contested, protocol }: ServicePlan,
  target: PacketTarget,
  { nodePortAddresses }: Pick<SharedPlan, "nodePortAddresses">,
): ContestedFrontend | undefined {
  if (contested === undefined || protocol !== target.protocol) return undefined;
  return contested.find(({ address, port }) =>
    port === target.port &&
    (address === undefined ? nodePortAddresses.includes(target.to) : address === target.to)
  );
}

function hasAddress(service: ServicePlan, to: IpAddress): boolean {
  return service.clusterIp === to || service.externalIps.includes(to) ||
    service.loadBalancerVips.includes(to);
}

/**
 * The ServicePorts that the user may have meant, the likeliest first, and the reason if one asks for the
 * address and port that it may not have.
 */
function nearMisses(
  { services, shared }: ProxyPlan,
  target: PacketTarget,
  unserved: readonly NearMiss[],
): { readonly absence?: Absence; readonly misses: readonly NearMiss[] } {
  const { to, port, protocol } = target;
  let absence: Absence | undefined;
  const found: Record<"claimant" | "endpoint" | "address" | "nodePort", NearMiss[]> = {
    claimant: [],
    endpoint: [],
    address: [],
    nodePort: [],
  };
  // Those with the longest common prefix of the address: typing errors tend to be at the end.
  const elsewhere: { readonly miss: NearMiss; readonly common: number }[] = [];
  for (const service of services.values()) {
    const missOf = (kind: NearMiss["kind"], address = to): NearMiss => (
      { kind, service: service.key, address, port: service.port, protocol: service.protocol }
    );
    const { owner } = contestedAt(service, target, shared) ?? {};
    if (typeof owner === "object") {
      const why = "refusal" in owner ? "refused" : "own-port";
      absence = { why, detail: withheldText(port, owner) };
      found.claimant.push(missOf(why));
    }
    const isSame = service.protocol === protocol;
    const { endpoints } = service;
    if (hasAddress(service, to)) {
      const isTarget = isSame && endpoints.some((endpoint) => endpoint.port === port);
      found.address.push(missOf(isTarget ? "target-port" : "other-port"));
    } else if (isSame && service.nodePort === port) {
      found.nodePort.push(missOf("node-port"));
    } else if (isSame && endpoints.some((each) => each.address === to && each.port === port)) {
      found.endpoint.push(missOf("endpoint"));
    } else if (isSame && service.port === port) {
      const { clusterIp, externalIps, loadBalancerVips } = service;
      for (const address of [clusterIp, ...externalIps, ...loadBalancerVips]) {
        const common = commonLength(address, to);
        if (elsewhere.length === MOST_MISSES && elsewhere.at(-1)!.common >= common) continue;
        elsewhere.push({ miss: missOf("other-address", address), common });
        elsewhere.sort((one, other) => other.common - one.common).splice(MOST_MISSES);
      }
    }
  }
  const { claimant, endpoint, address, nodePort } = found;
  // A Service that has the address at another port is not reported as one without the address.
  const isServed = (name: string) =>
    address.slice(0, MOST_MISSES).some(({ service }) =>
      service.startsWith(`${name}:`) || service.startsWith(`${name}/`)
    );
  const misses = [
    ...claimant.slice(0, MOST_MISSES),
    ...unserved.filter(({ service }) => !isServed(service)),
    ...[endpoint, address, nodePort].flatMap((list) => list.slice(0, MOST_MISSES)),
    ...elsewhere.map(({ miss }) => miss),
  ];
  return { ...(absence && { absence }), misses };
}

function commonLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return length;
}

/** The Services that have the address. Reads the addresses of each: about 2 ms for 1,000. */
export function unservedAt(services: Iterable<Service>, address: IpAddress): readonly NearMiss[] {
  const found: NearMiss[] = [];
  for (const service of services) {
    const place = placeOf(service, address);
    if (place === undefined) continue;
    const reason: UnservedReason = unproxiedReason(service) ?? place;
    const { ports = [] } = service.spec;
    // A served port is reported from the plan.
    if (reason === "no usable port" && ports.length > 0) continue;
    const name = serviceKey(namespacedNameOf(service));
    found.push({ kind: "unserved", service: name, address, reason });
  }
  return found;
}

/** The reason why a Service of kube-relay may not be served at this address. */
function placeOf(
  { metadata, spec, status }: Service,
  address: IpAddress,
): UnservedReason | undefined {
  const isIt = (text: string | undefined) => text !== undefined && isAddress(text, address);
  if ([spec.clusterIP, ...spec.clusterIPs ?? []].some(isIt)) return "no usable port";
  if (spec.externalIPs?.some(isIt)) return "external IP";
  const ingress = status?.loadBalancer?.ingress?.find(({ ip }) => isIt(ip));
  if (ingress === undefined) return undefined;
  if (metadata.annotations?.[SKIP_LOAD_BALANCER_IPS_ANNOTATION] !== undefined) return "skipped";
  return ingress.ipMode === "Proxy" ? "ipMode Proxy" : "no usable port";
}

/**
 * Fast path: most objects use the canonical spelling, and parsing takes a hundred times as long.
 */
function isAddress(text: string, address: IpAddress): boolean {
  if (text === address) return true;
  const isUsual = /^\d{1,3}(\.\d{1,3}){3}$/.test(text) && !/(^|\.)0\d/.test(text);
  return !isUsual && tryParseIpAddress(text) === address;
}
