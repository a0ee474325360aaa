import { isFromCluster } from "../../lib/proxy/explain_packet.ts";
import type {
  ModeDeviations,
  ModeExplanation,
  PacketExplanation,
  PacketHit,
} from "../../lib/proxy/packet_explanation.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { type ServiceAddress, serviceAddresses } from "./listeners.ts";
import { renderForwardingTable } from "./render.ts";

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
  { service }: PacketHit,
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
  const refusal = refusalOf(service.protocol, at, isDropped);
  return {
    ...(asOutsider !== undefined && { asOutsider }),
    ...(refusal && { refusal }),
    source: {
      rewritten: "always",
      detail: "every connection to an endpoint is made by kube-relay on the node",
    },
  };
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
