import { describeEdgeSettings } from "../../lib/proxy/edge_settings.ts";
import { isFromCluster } from "../../lib/proxy/explain_packet.ts";
import type {
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
  PacketHit,
} from "../../lib/proxy/packet_explanation.ts";
import type { ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import { type ServiceAddress, serviceAddresses } from "./listeners.ts";

/** Characters after which a piece is handed out. */
const PIECE = 16_384;

/**
 * One line for each address, in the order of the keys:
 * `10.96.0.10:53/UDP ClusterIP kube-system/kube-dns:dns/UDP -> 10.0.0.1:53 10.0.0.2:53`.
 */
export function* renderForwardingTable(
  plan: ProxyPlan,
  keys: Iterable<ServicePortKey> = plan.services.keys(),
): Generator<string> {
  let piece = "";
  for (const key of [...keys].sort()) {
    const service = plan.services.get(key);
    if (service) piece += renderService(service, plan.shared);
    if (piece.length < PIECE) continue;
    yield piece;
    piece = "";
  }
  if (piece !== "") yield piece;
}

function renderService(plan: ServicePlan, shared: SharedPlan): string {
  const affinity = plan.affinityTimeoutSeconds === undefined
    ? ""
    : `, affinity ${plan.affinityTimeoutSeconds}s`;
  const settings = plan.edge ? describeEdgeSettings(plan.edge).map((each) => `, ${each}`) : [];
  const rest = [affinity, ...settings].join("");
  return serviceAddresses(plan, shared)
    .map((at) => {
      const names = at.names ? ` for ${at.names.join(" ")}` : "";
      return `${at.socket} ${at.role} ${plan.key}${names} -> ${renderVerdicts(plan, at)}${rest}\n`;
    })
    .join("");
}

function renderVerdicts(plan: ServicePlan, { traffic, role }: ServiceAddress): string {
  if (traffic === "internal") return renderVerdict(plan.internal);
  const external = renderVerdict(plan.external);
  const fromCluster = renderVerdict(plan.externalFromCluster);
  const { sourceRanges } = plan;
  const ranges = role === "LoadBalancer" && sourceRanges
    ? sourceRanges.length > 0 ? `, only from ${sourceRanges.join(" ")}` : ", admits no client"
    : "";
  if (external === fromCluster) return external + ranges;
  return `${external}, from this cluster ${fromCluster}${ranges}`;
}

function renderVerdict(verdict: Verdict): string {
  if (verdict.kind !== "forward") return verdict.kind;
  return verdict.endpoints.map(({ key }) => key).join(" ");
}

/** Explains which socket carries the packet. */
export function explainUserspace(
  plan: ProxyPlan,
  explanation: PacketExplanation,
  hit: PacketHit | undefined,
): ModeExplanation {
  const { packet: { to, port } } = explanation;
  const at = hit && serviceAddresses(hit.service, plan.shared)
    .find((each) => each.address === to && each.port === port);
  if (hit === undefined || at === undefined || explanation.verdict.kind === "unclaimed") {
    return { carriers: [] };
  }
  const deviations = deviationsOf(hit, at, { plan, explanation });
  const [line = ""] = [...renderForwardingTable(plan, [hit.service.key])].join("").split("\n")
    .filter((each) => each.startsWith(`${at.socket} `));
  const object = at.open && deviations.unserved === undefined ? "socket" : "no socket";
  return { deviations, carriers: [{ object, name: at.socket, text: line }] };
}

function deviationsOf(
  { service, isNameless }: PacketHit,
  at: ServiceAddress,
  { plan, explanation }: {
    readonly plan: ProxyPlan;
    readonly explanation: PacketExplanation;
  },
): ModeDeviations {
  if (service.protocol === "SCTP") {
    return { unserved: "userspace mode forwards no SCTP; a kernel mode does" };
  }
  const asOutsider = outsiderReason(plan, explanation);
  const isDropped = asOutsider === undefined
    ? explanation.verdict.kind === "drop"
    : service.external.kind === "drop" || explanation.verdict.kind === "drop";
  const refusal = isNameless
    ? { kind: "reject" as const, detail: namelessText(explanation) }
    : refusalOf(service.protocol, at, isDropped);
  return {
    ...(asOutsider !== undefined && { asOutsider }),
    ...(refusal && { refusal }),
    source: {
      rewritten: "always",
      detail: "every connection to an endpoint is made by kube-relay on the node",
    },
  };
}

function namelessText({ packet: { serverName } }: PacketExplanation): string {
  return serverName === undefined
    ? "each Service at this address and port has server names, and the client sends none (--sni NAME)"
    : `no Service at this address and port has the server name ${serverName}`;
}

/** Without netfilter, a socket does not show the interface of a client. */
function outsiderReason(
  { shared: { localTraffic } }: ProxyPlan,
  { origin, policy }: PacketExplanation,
): string | undefined {
  const goesByInterface = localTraffic.kind === "byBridge" ||
    localTraffic.kind === "byInterfacePrefix";
  const isAffected = goesByInterface && !origin.isFromNode && isFromCluster(origin) &&
    policy?.verdict === "externalFromCluster" && policy.ofService === "Local";
  return isAffected
    ? "a socket does not show the interface of a client, so pods count as outside clients"
    : undefined;
}

function refusalOf(
  protocol: "TCP" | "UDP",
  { open }: ServiceAddress,
  isDropped: boolean,
): ModeDeviations["refusal"] {
  if (!isDropped) return undefined;
  if (!open) {
    return {
      kind: "reject",
      detail: "no client is forwarded there, so there is no socket, and the kernel refuses",
    };
  }
  if (protocol === "UDP") return undefined;
  return {
    kind: "reject",
    detail:
      "without a packet filter a TCP connection can't be left unanswered: it is closed at once",
  };
}
