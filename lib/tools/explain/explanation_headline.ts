import { formatHostPort } from "../../net/port.ts";
import type { ExplainedVerdict, PacketExplanation } from "../../proxy/packet_explanation.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";

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
export function nameOf(key: ServicePortKey): string {
  return key.slice(0, key.lastIndexOf("/"));
}

/** The destination of a packet, e.g. `10.96.0.1:443/TCP`. */
export function socketOf({ to, port, protocol }: PacketExplanation["packet"]): string {
  return `${formatHostPort(to, port)}/${protocol}`;
}
