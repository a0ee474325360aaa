/**
 * Determines which source address the endpoints see in a packet, and why.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import type { Endpoint } from "./endpoint.ts";
import { hairpinEndpoints } from "./hairpin.ts";
import type { ExplainedOrigin, ExplainedSource, ModeDeviations } from "./packet_explanation.ts";
import type { PacketHit } from "./packet_hit.ts";
import { assertNever } from "./verdict.ts";

/** Whether the source address changes, apart from endpoints that receive their own packets. */
export function explainSource(
  { service, role }: Pick<PacketHit, "role" | "service">,
  { isFromPod, isFromNode }: ExplainedOrigin,
  deviations: ModeDeviations = {},
): ExplainedSource {
  const { source } = deviations;
  if (source) return { rewritten: source.rewritten, reason: "mode", detail: source.detail };
  if (role !== "ClusterIP") {
    if (service.masqueradeExternal === "all") {
      return { rewritten: "always", reason: "cluster-policy" };
    }
    return isFromNode && isFromPod !== true
      ? { rewritten: "always", reason: "from-node" }
      : { rewritten: "own-packets", reason: isFromPod === true ? "pod" : "keeps-client" };
  }
  const { masqueradeInternal } = service;
  switch (masqueradeInternal) {
    case "all":
      return { rewritten: "always", reason: "masquerade-all" };
    case "off-cluster":
      if (isFromPod === true) return { rewritten: "own-packets", reason: "pod" };
      return { rewritten: "always", reason: isFromNode ? "from-node" : "off-cluster" };
    case "none":
      return { rewritten: "own-packets", reason: "no-detector" };
    default:
      return assertNever(masqueradeInternal);
  }
}

/** Whether one endpoint sees an address of the node instead of the sender's. */
export function isSourceRewritten(
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
