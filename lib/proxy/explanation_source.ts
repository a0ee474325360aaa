/**
 * Describes in text what happens to the source address.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import type { ExplainedSource, SourceReason } from "./packet_explanation.ts";

const REASONS: Readonly<Record<SourceReason, string>> = {
  "cluster-policy": "with externalTrafficPolicy Cluster the endpoint may be on another node, and " +
    "its answers must come back through this node; the client's address is lost (policy Local keeps it)",
  "from-node": "the node's own address may be one that the endpoint cannot answer",
  "keeps-client": "externalTrafficPolicy Local keeps the client's address",
  "masquerade-all": "masqueradeAll is set",
  "mode": "",
  "no-detector": "which packets come from pods is not known, so none is masqueraded; " +
    "--cluster-cidr would tell",
  "off-cluster": "the sender counts as outside, and answers have to come back this way",
  "pod": "pods keep theirs",
};

/** Whether the endpoints see the sender's address, and why. */
export function sourceText(
  { rewritten, reason, detail }: ExplainedSource,
  sender: IpAddress,
): string {
  const why = detail ?? REASONS[reason];
  return rewritten === "always"
    ? `CHANGES from ${sender} to an address of the node: ${why}`
    : `stays ${sender}: ${why}`;
}
