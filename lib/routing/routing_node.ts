import { POD_CIDR_ANNOTATIONS, type RoutedNode } from "../api/kinds/routed_node.ts";
import {
  EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
  OUT_OF_SERVICE_TAINT,
  TO_BE_DELETED_TAINT,
} from "../api/labels.ts";
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf, tryParseIpAddress } from "../net/ip_address.ts";
import type { Labels } from "../policy/label_selector.ts";

/** A Node, as far as addresses and routes depend on it. */
export interface RoutingNode {
  readonly name: string;
  readonly labels: Labels;
  readonly annotations: Readonly<Record<string, string>>;
  /** InternalIPs and ExternalIPs. */
  readonly addresses: readonly IpAddress[];
  /** The first InternalIP of each family. */
  readonly primary: Readonly<Partial<Record<IpFamily, IpAddress>>>;
  readonly podCidrs: readonly Cidr[];
  /** Texts in place of ranges of pods that are no CIDRs. Absent = none. */
  readonly invalidPodCidrs?: readonly string[];
  /** The reason why it announces no address of a Service. Absent = it may. */
  readonly exclusion?: string;
  /** Whether it is used only where no other node is ready. Absent = it is ready, or does not say. */
  readonly isNotReady?: true;
}

/** Reads a Node. Skips what cannot be parsed: the kubelet writes it. */
export function routingNodeOf({ metadata, spec, status }: RoutedNode): RoutingNode {
  const addresses: IpAddress[] = [];
  const primary: Partial<Record<IpFamily, IpAddress>> = {};
  for (const { type, address: text } of status.addresses ?? []) {
    const address = tryParseIpAddress(text);
    if (address === undefined || type !== "InternalIP" && type !== "ExternalIP") continue;
    addresses.push(address);
    if (type === "InternalIP") primary[ipFamilyOf(address)] ??= address;
  }
  const ranges = podRangesOf({ metadata, spec });
  const invalidPodCidrs = ranges.filter((text) => tryParseCidr(text) === undefined);
  const exclusion = exclusionOf({ metadata, spec, status });
  // A Node without conditions, as in a manifest, counts as ready.
  const isNotReady = (conditionOf(status, "Ready") ?? "True") !== "True";
  return {
    name: metadata.name,
    labels: metadata.labels ?? {},
    annotations: metadata.annotations ?? {},
    addresses,
    primary,
    podCidrs: ranges.flatMap((text) => tryParseCidr(text) ?? []),
    ...(invalidPodCidrs.length > 0 && { invalidPodCidrs }),
    ...(exclusion !== undefined && { exclusion }),
    ...(isNotReady && { isNotReady }),
  };
}

/** A kubelet may change the annotations of its Node but not its spec, which therefore goes first. */
function podRangesOf(
  { metadata: { annotations = {} }, spec }: Pick<RoutedNode, "metadata" | "spec">,
): readonly string[] {
  if (spec.podCIDRs?.length) return spec.podCIDRs;
  const [annotated] = POD_CIDR_ANNOTATIONS.flatMap((name) => annotations[name] ?? []);
  const text = spec.podCIDR || annotated || "";
  return text.split(",").map((each) => each.trim()).filter((each) => each !== "");
}

function conditionOf({ conditions }: RoutedNode["status"], type: string): string | undefined {
  return conditions?.find((each) => each.type === type)?.status;
}

function exclusionOf(
  { metadata, spec, status }: Pick<RoutedNode, "metadata" | "spec" | "status">,
): string | undefined {
  if (metadata.deletionTimestamp !== undefined) return "the Node is being deleted";
  // The API gives the label no value; upstream treats each one alike.
  if (metadata.labels?.[EXCLUDE_FROM_LOAD_BALANCERS_LABEL] !== undefined) {
    return `the Node has the label ${EXCLUDE_FROM_LOAD_BALANCERS_LABEL}`;
  }
  const taint = spec.taints?.find(({ key }) =>
    key === OUT_OF_SERVICE_TAINT || key === TO_BE_DELETED_TAINT
  );
  if (taint) return `the Node has the taint ${taint.key}`;
  // After a reboot, the routes to pods of other nodes are missing until it is False.
  return conditionOf(status, "NetworkUnavailable") === "True"
    ? "the Node has the condition NetworkUnavailable"
    : undefined;
}
