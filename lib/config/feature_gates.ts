/**
 * Kubernetes' feature gates, as far as they mean something to a Service proxy of 1.36.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "./configuration.ts";
import { nearestName } from "./nearest_name.ts";

/** One gate. */
export interface FeatureGate {
  readonly name: string;
  readonly stage: "alpha" | "beta" | "GA";
  readonly default: boolean;
  /** It cannot be set against its default. */
  readonly locked?: true;
  /** What it does here. */
  readonly effect: string;
}

/** The gates that may be set. */
export const FEATURE_GATES = [
  {
    name: "AllowServiceExternalIPs",
    stage: "GA",
    default: true,
    effect: "`false`: `spec.externalIPs` are not served",
  },
  {
    name: "PreferSameTrafficDistribution",
    stage: "GA",
    default: true,
    locked: true,
    effect: "hints for nodes are used, like those for zones",
  },
  {
    name: "MultiCIDRServiceAllocator",
    stage: "GA",
    default: true,
    locked: true,
    effect: "ServiceCIDR objects are watched",
  },
  {
    name: "NFTablesProxyMode",
    stage: "GA",
    default: true,
    locked: true,
    effect: "nftables mode is available",
  },
  {
    name: "ComponentFlagz",
    stage: "beta",
    default: true,
    effect: "`/flagz` on the metrics port",
  },
  {
    name: "ComponentStatusz",
    stage: "beta",
    default: true,
    effect: "`/statusz` on the metrics port",
  },
  {
    name: "WatchListClient",
    stage: "beta",
    default: true,
    effect: "`false`: objects are listed in pages, never as a stream",
  },
  {
    name: "LoggingAlphaOptions",
    stage: "alpha",
    default: false,
    effect: "options of the log formats (split streams) are accepted, without effect",
  },
  {
    name: "LoggingBetaOptions",
    stage: "beta",
    default: true,
    effect: "`false`: JSON logs are refused",
  },
  {
    name: "NativeHistograms",
    stage: "alpha",
    default: false,
    effect: "none: histograms only have the classic form",
  },
  { name: "ContextualLogging", stage: "beta", default: true, effect: "none" },
  { name: "InformerResourceVersion", stage: "GA", default: true, effect: "none" },
  {
    name: "AllAlpha",
    stage: "alpha",
    default: false,
    effect: "sets every alpha gate that is not set individually",
  },
  {
    name: "AllBeta",
    stage: "beta",
    default: false,
    effect: "sets every beta gate that is not set individually",
  },
] as const satisfies readonly FeatureGate[];

/** Name of a gate of the table. */
type FeatureGateName = typeof FEATURE_GATES[number]["name"];

/**
 * Gates of older releases that manifests still carry. What they switched is fixed now; upstream
 * refuses to start on them.
 */
export const RETIRED_GATES: readonly string[] = [
  ...["EndpointSlice", "EndpointSliceProxying", "WindowsEndpointSliceProxying", "ServiceTopology"],
  ...["TopologyAwareHints", "ProxyTerminatingEndpoints", "EndpointSliceTerminatingCondition"],
  ...["MinimizeIPTablesRestore", "IPTablesOwnershipCleanup", "IPv6DualStack", "SCTPSupport"],
  ...["ServiceInternalTrafficPolicy", "KubeProxyDrainingTerminatingNodes", "LoadBalancerIPMode"],
  ...[
    "ServiceTrafficDistribution",
    "SupportIPVSProxyMode",
    "EphemeralContainers",
    "ServiceIPStaticSubrange",
  ],
  ...["MixedProtocolLBService", "ServiceLBNodePortControl", "ServiceLoadBalancerClass"],
  ...["ServiceNodePortStaticSubrange", "CleanLegacyIPTables", "ServiceAppProtocol"],
];

const ROWS: readonly FeatureGate[] = FEATURE_GATES;

/** Whether a gate is open: as set, as its stage is set by AllAlpha or AllBeta, or by default. */
export function featureEnabled(
  { featureGates }: Pick<KubeProxyConfiguration, "featureGates">,
  name: FeatureGateName,
): boolean {
  const gate = ROWS.find((row) => row.name === name)!;
  if (gate.locked) return gate.default;
  const bulk = gate.stage === "alpha" ? featureGates.AllAlpha : featureGates.AllBeta;
  return featureGates[name] ?? (gate.stage === "GA" ? undefined : bulk) ?? gate.default;
}

/** What is to be said of one gate that was set. */
interface FeatureGateFinding {
  readonly name: string;
  readonly message: string;
}

/**
 * So many letters a misspelt gate has wrong. Gates of other programs come as near as four:
 * ComponentSLIs to ComponentFlagz, MultiCIDRRangeAllocator to MultiCIDRServiceAllocator.
 */
const MOST_TYPOS = 2;

/**
 * Gates that cannot be set so, and gates that have no effect. Upstream takes each gate of the whole
 * of Kubernetes, which one list for all programs of a node relies on; so only what looks like a
 * misspelt gate of ours is wrong.
 */
export function checkFeatureGates(featureGates: Readonly<Record<string, boolean>>): {
  readonly problems: readonly FeatureGateFinding[];
  readonly ignored: readonly FeatureGateFinding[];
} {
  const problems: FeatureGateFinding[] = [];
  const ignored: FeatureGateFinding[] = [];
  const names = ROWS.map((row) => row.name);
  for (const [name, value] of Object.entries(featureGates)) {
    const gate = ROWS.find((row) => row.name === name);
    const meant = nearestName(name, names, { mostEdits: MOST_TYPOS });
    if (RETIRED_GATES.includes(name)) {
      const message = `Feature gate ${name} was retired and has no effect; take it out`;
      ignored.push({ name, message });
    } else if (gate === undefined && meant !== undefined) {
      const message = `Expected a feature gate, found '${name}'; did you mean '${meant}'?`;
      problems.push({ name, message });
    } else if (gate === undefined) {
      ignored.push({ name, message: `${name} is not a gate of kube-proxy; ignored` });
    } else if (gate.locked && value !== gate.default) {
      const message = `Expected ${gate.default}, since the gate is locked, found ${value}`;
      problems.push({ name, message });
    }
  }
  return { problems, ignored };
}
