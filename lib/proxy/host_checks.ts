/**
 * Checks of the machine before a mode is chosen, and for `doctor`. `backends/mod.ts` implements
 * them.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { BackendMode } from "./backend.ts";
import type { CleanupReport } from "../engine/data_plane.ts";
import type { ProbeResult } from "./service_mode.ts";

/** Other software that writes rules for Services or policies. */
type ForeignSoftware =
  | "kube-proxy"
  | "kube-router"
  | "klipper"
  | "metallb"
  | "kube-vip"
  | "calico"
  | "cilium"
  | "kube-network-policies"
  | "other";

/** A finding on this machine that an administrator should know. */
export interface HostFinding {
  /** Stable identifier for programs, e.g. `kube-proxy-alive`. */
  readonly id: string;
  /**
   * `blocking`: both would handle the same packets; `warning`: may mislead; `info`: good to know.
   */
  readonly severity: "blocking" | "warning" | "info";
  readonly software?: ForeignSoftware;
  /** The finding, as one sentence without a full stop. */
  readonly summary: string;
  /** The places where it was seen, one line each: `chain KUBE-SVC-… (412) in nat, iptables-nft`. */
  readonly evidence: readonly string[];
  /** The remedy for an administrator. */
  readonly cure?: string;
}

/** Returns the finding for what was seen; none without evidence. */
export function findingOf(
  evidence: readonly string[],
  { cure, ...finding }: Omit<HostFinding, "cure" | "evidence"> & {
    readonly cure?: string | undefined;
  },
): readonly HostFinding[] {
  if (evidence.length === 0) return [];
  return [{ ...finding, evidence, ...(cure !== undefined && { cure }) }];
}

/** Sorts findings, the most severe first. */
export function bySeverity(findings: readonly HostFinding[]): readonly HostFinding[] {
  return ["blocking", "warning", "info"].flatMap((severity) =>
    findings.filter((finding) => finding.severity === severity)
  );
}

/** Options of every check. */
export interface HostCheckOptions {
  readonly signal?: AbortSignal;
  /**
   * Whether the mode runs next if it can, so the check may leave objects behind that the mode needs.
   * @default {false}
   */
  readonly isForRun?: boolean;
}

/** What a start does with addresses of Services, as far as other software hinders it. */
export interface RoutingIntent {
  /** Whether Services without a load balancer class get addresses. */
  readonly assignsByDefault: boolean;
  /** The control socket of the own BGP daemon. @default {BGP is disabled} */
  readonly bgpSocket?: string;
}

/** Options of the search for findings. */
export interface FindingOptions extends HostCheckOptions {
  /** `ports`: only whether a kube-proxy runs now, within 3 s. @default {"everything"} */
  readonly scope?: "ports" | "everything";
  /** The running mode, whose rules are not reported. @default {none runs} */
  readonly mode?: BackendMode;
  /** Whether a start enforces NetworkPolicies, which another enforcer hinders. @default {false} */
  readonly networkPolicy?: boolean;
  /** Whether a start takes over from a kube-proxy, which may run then. @default {false} */
  readonly takeover?: boolean;
  /** @default {a start assigns and announces no addresses} */
  readonly routing?: RoutingIntent;
  /** Annotations of the own Node, if known: k3s records there how it was started. */
  readonly nodeAnnotations?: Readonly<Record<string, string>>;
}

/** Options for the removal of kube-proxy's leftovers. */
export interface KubeProxyRemovalOptions extends HostCheckOptions {
  /** Only reports the actions. */
  readonly dryRun: boolean;
  /**
   * The running mode; its rules stay although some have kube-proxy's names. @default {none runs}
   */
  readonly mode?: BackendMode;
  /**
   * Virtual servers in these ranges belong to other software (`ipvs.excludeCIDRs`). @default {[]}
   */
  readonly excludeCidrs?: readonly Cidr[];
}

/** Options for the removal of the leftovers of another enforcer of NetworkPolicies. */
export interface PolicyRemovalOptions extends HostCheckOptions {
  /** Only reports the actions. */
  readonly dryRun: boolean;
}

/** The finding of a kube-proxy that answers; the only one in scope `ports`. */
export const KUBE_PROXY_ALIVE = "kube-proxy-alive";

/**
 * The machine, as far as modes depend on it. Only its removals leave changes behind.
 */
export interface HostChecks {
  /**
   * Tests each requirement of a mode, for both IP families, also for modes that this build lacks.
   * Leaves nothing behind.
   */
  probeMode(mode: BackendMode, options?: HostCheckOptions): Promise<readonly ProbeResult[]>;
  /** Finds the leftovers and activities of other software on this machine. */
  findings(options?: FindingOptions): Promise<readonly HostFinding[]>;
  /**
   * Removes the leftovers of kube-proxy's modes, and nothing else: jumps first, then chains, then
   * sets. With `dryRun` only reports the actions.
   */
  removeKubeProxy(options: KubeProxyRemovalOptions): Promise<CleanupReport>;
  /**
   * Removes the chains, tables and sets by which kube-router, or k3s, enforces NetworkPolicies, and
   * nothing else. For the time after the first sync of kube-relay's own rules.
   */
  removeKubeRouterPolicies(options: PolicyRemovalOptions): Promise<CleanupReport>;
}
