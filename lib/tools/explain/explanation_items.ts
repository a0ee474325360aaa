import { formatHostPort } from "../../net/port.ts";
import type {
  ExplainedEndpoint,
  NearMiss,
  PacketExplanation,
  UnservedReason,
} from "../../proxy/packet_explanation.ts";
import type { SharedPlan } from "../../proxy/proxy_plan.ts";
import type { NodeTopology } from "../../proxy/topology.ts";
import { assertNever } from "../../proxy/verdict.ts";

/** One endpoint: `+` may receive the packet, `-` may not, with the reason. */
export function endpointItem(endpoint: ExplainedEndpoint, node: NodeTopology): string {
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
export function missItem(
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
