import { type Cidr, cidrContains, cidrFamilyOf } from "../net/cidr.ts";
import type { IpFamily } from "../net/ip_address.ts";
import type { PacketSender } from "./packet.ts";
import { assertNever } from "./verdict.ts";

/**
 * `none` means that nothing is known: all traffic is treated as from a pod, so no traffic from
 * outside to a cluster IP is masqueraded (upstream's "not implemented" detector).
 */
export type LocalTrafficDetector =
  | { readonly kind: "byCidr"; readonly cidr: Cidr }
  | { readonly kind: "byBridge"; readonly interfaceName: string }
  | { readonly kind: "byInterfacePrefix"; readonly prefix: string }
  | { readonly kind: "none" };

/** The values of `detectLocalMode`. */
export type DetectLocalMode =
  | "ClusterCIDR"
  | "NodeCIDR"
  | "BridgeInterface"
  | "InterfaceNamePrefix";

/** Options of {@linkcode localTrafficDetector}. */
export interface LocalTrafficOptions {
  readonly mode: DetectLocalMode;
  /** For mode ClusterCIDR; may contain both families. */
  readonly clusterCidrs?: readonly Cidr[];
  /** For mode NodeCIDR; may contain both families. */
  readonly podCidrs?: readonly Cidr[];
  /** For mode BridgeInterface. */
  readonly bridgeInterface?: string;
  /** For mode InterfaceNamePrefix. */
  readonly interfaceNamePrefix?: string;
}

/**
 * The detector of one IP family. Only the first range of the family counts, as in upstream; without
 * a range the result is `none`. Throws a RangeError if the mode lacks its interface name.
 */
export function localTrafficDetector(
  options: LocalTrafficOptions,
  family: IpFamily,
): LocalTrafficDetector {
  switch (options.mode) {
    case "ClusterCIDR":
      return byCidr(options.clusterCidrs, family);
    case "NodeCIDR":
      return byCidr(options.podCidrs, family);
    case "BridgeInterface":
      return { kind: "byBridge", interfaceName: required(options, "bridgeInterface") };
    case "InterfaceNamePrefix":
      return { kind: "byInterfacePrefix", prefix: required(options, "interfaceNamePrefix") };
    default:
      return assertNever(options.mode);
  }
}

/**
 * Whether a packet counts as one from a pod. `undefined` = unknown: there is no detector, or it
 * depends on an unknown interface.
 */
export function isFromPod(
  detector: LocalTrafficDetector,
  { address, interfaceName }: Pick<PacketSender, "address" | "interfaceName">,
): boolean | undefined {
  switch (detector.kind) {
    case "byCidr":
      return cidrContains(detector.cidr, address);
    case "byBridge":
      return interfaceName === undefined ? undefined : interfaceName === detector.interfaceName;
    case "byInterfacePrefix":
      return interfaceName?.startsWith(detector.prefix);
    case "none":
      return undefined;
    default:
      return assertNever(detector);
  }
}

function byCidr(cidrs: readonly Cidr[] = [], family: IpFamily): LocalTrafficDetector {
  const cidr = cidrs.find((candidate) => cidrFamilyOf(candidate) === family);
  // 0.0.0.0/0 would match every source; iptables refuses "! -s 0.0.0.0/0", in the rules of every
  // Service.
  const tellsApart = cidr !== undefined && !cidr.endsWith("/0");
  return tellsApart ? { kind: "byCidr", cidr } : { kind: "none" };
}

function required(
  options: LocalTrafficOptions,
  field: "bridgeInterface" | "interfaceNamePrefix",
): string {
  const value = options[field] ?? "";
  if (value !== "") return value;
  throw new RangeError(
    `Cannot detect local traffic by '${options.mode}': detectLocal.${field} is empty, it has to name an interface`,
  );
}
