/**
 * Describes the endpoints of an explanation in text.
 *
 * @module
 */
import type { ExplainedEndpoint } from "./packet_explanation.ts";
import type { NodeTopology } from "./topology.ts";
import { assertNever } from "./verdict.ts";

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
