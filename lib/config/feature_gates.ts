/**
 * Kubernetes' feature gates that concern a Service proxy of 1.36.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "./configuration.ts";
import { nearestName } from "../api/nearest_name.ts";

/** One gate. */
export interface FeatureGate {
  readonly name: string;
  readonly stage: "alpha" | "beta" | "GA";
  readonly default: boolean;
  /** The gate cannot be changed from its default. */
  readonly locked?: true;
  /** The effect of the gate in kube-relay. */
  readonly effect: string;
}

function gate<const Name extends string>(
  name: Name,
  stage: FeatureGate["stage"],
  effect: string,
  others: { readonly default?: boolean; readonly locked?: true } = {},
): FeatureGate & { readonly name: Name } {
  return { name, stage, default: stage !== "alpha", effect, ...others };
}

/** The supported gates. Those of stage alpha are off by default, all others are on. */
export const FEATURE_GATES = [
  gate("AllowServiceExternalIPs", "GA", "`false`: `spec.externalIPs` are not served"),
  gate("PreferSameTrafficDistribution", "GA", "hints for nodes are used, like those for zones", {
    locked: true,
  }),
  gate("MultiCIDRServiceAllocator", "GA", "ServiceCIDR objects are watched", { locked: true }),
  gate("NFTablesProxyMode", "GA", "nftables mode is available", { locked: true }),
  gate("ComponentFlagz", "beta", "`/flagz` on the metrics port"),
  gate("ComponentStatusz", "beta", "`/statusz` on the metrics port"),
  gate("WatchListClient", "beta", "`false`: objects are listed in pages, never as a stream"),
  gate(
    "LoggingAlphaOptions",
    "alpha",
    "options of the log formats (split streams) are accepted, without effect",
  ),
  gate("LoggingBetaOptions", "beta", "`false`: JSON logs are refused"),
  gate("NativeHistograms", "alpha", "none: histograms only have the classic form"),
  gate("ContextualLogging", "beta", "none"),
  gate("InformerResourceVersion", "GA", "none"),
  gate("AllAlpha", "alpha", "sets every alpha gate that is not set individually"),
  gate("AllBeta", "beta", "sets every beta gate that is not set individually", { default: false }),
] as const;

/** Name of a gate in the table. */
type FeatureGateName = typeof FEATURE_GATES[number]["name"];

/**
 * Gates of older releases that manifests still use. Their behavior is fixed now; upstream refuses
 * to start with them.
 */
export const RETIRED_GATES: readonly string[] = [
  ...["EndpointSlice", "EndpointSliceProxying", "WindowsEndpointSliceProxying"],
  ...["ServiceTopology", "TopologyAwareHints", "ProxyTerminatingEndpoints"],
  ...["EndpointSliceTerminatingCondition", "MinimizeIPTablesRestore"],
  ...["IPTablesOwnershipCleanup", "IPv6DualStack", "SCTPSupport"],
  ...["ServiceInternalTrafficPolicy", "KubeProxyDrainingTerminatingNodes"],
  ...["LoadBalancerIPMode", "ServiceTrafficDistribution", "SupportIPVSProxyMode"],
  ...["EphemeralContainers", "ServiceIPStaticSubrange", "MixedProtocolLBService"],
  ...["ServiceLBNodePortControl", "ServiceLoadBalancerClass"],
  ...["ServiceNodePortStaticSubrange", "CleanLegacyIPTables", "ServiceAppProtocol"],
];

const ROWS: readonly FeatureGate[] = FEATURE_GATES;

/**
 * Returns whether a gate is on: explicitly, by AllAlpha or AllBeta for its stage, or by default.
 */
export function featureEnabled(
  { featureGates }: Pick<KubeProxyConfiguration, "featureGates">,
  name: FeatureGateName,
): boolean {
  const gate = ROWS.find((row) => row.name === name)!;
  if (gate.locked) return gate.default;
  const bulk = gate.stage === "alpha" ? featureGates.AllAlpha : featureGates.AllBeta;
  return featureGates[name] ?? (gate.stage === "GA" ? undefined : bulk) ?? gate.default;
}

/** A finding about one gate of the configuration. */
interface FeatureGateFinding {
  readonly name: string;
  readonly message: string;
}

/**
 * Most wrong letters of a misspelt gate. Gates of other programs differ by only four: ComponentSLIs
 * and ComponentFlagz, MultiCIDRRangeAllocator and MultiCIDRServiceAllocator.
 */
const MOST_TYPOS = 2;

/**
 * Returns the invalid gates and those without effect. Upstream accepts every gate of Kubernetes,
 * and nodes with one list for all programs rely on it; so an unknown gate is only invalid if it
 * looks like a misspelling of a supported one.
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
    const meant = nearestName(name, names, MOST_TYPOS);
    if (RETIRED_GATES.includes(name)) {
      const message = `Feature gate ${name} was retired and has no effect; remove it`;
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
