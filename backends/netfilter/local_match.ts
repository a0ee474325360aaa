import { interfaceNameLength, LONGEST_INTERFACE_NAME } from "../../lib/net/interface_name.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { assertNever } from "../../lib/proxy/verdict.ts";
import type { RuleMatch } from "./iptables/iptables_objects.ts";

/** A packet that the node itself sends. */
export const FROM_NODE: RuleMatch = { extensions: [["addrtype", "--src-type", "LOCAL"]] };

/** Matches packets from pods; `undefined` = pods cannot be recognized. */
export function fromPod(detector: LocalTrafficDetector): RuleMatch | undefined {
  switch (detector.kind) {
    case "byCidr":
      return { source: { value: detector.cidr } };
    case "byBridge":
      return { inInterface: { value: detector.interfaceName } };
    case "byInterfacePrefix":
      return { inInterface: { value: prefixMatch(detector.prefix) } };
    case "none":
      return undefined;
    default:
      return assertNever(detector);
  }
}

/** A prefix of full length is a whole name, and iptables refuses a longer one. */
function prefixMatch(prefix: string): string {
  return interfaceNameLength(prefix) < LONGEST_INTERFACE_NAME ? `${prefix}+` : prefix;
}

/**
 * Matches the packets to a cluster IP that leave with an address of the node; `undefined` = none.
 */
export function internalMasqueradeMatch(
  { masqueradeInternal }: Pick<ServicePlan, "masqueradeInternal">,
  detector: LocalTrafficDetector,
): RuleMatch | undefined {
  switch (masqueradeInternal) {
    case "all":
      return {};
    case "off-cluster":
      return notFromPod(detector);
    case "none":
      return undefined;
    default:
      return assertNever(masqueradeInternal);
  }
}

/** Matches packets from other senders; `undefined` = pods cannot be recognized. */
export function notFromPod(detector: LocalTrafficDetector): RuleMatch | undefined {
  const { source, inInterface } = fromPod(detector) ?? {};
  if (source) return { source: { ...source, not: true } };
  return inInterface && { inInterface: { ...inInterface, not: true } };
}
