/**
 * What the application asks of the machine before a mode is chosen, and for `doctor`. Owned by its
 * caller; `backends/mod.ts` answers.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { BackendMode } from "./backend.ts";
import type { CleanupReport } from "./data_plane.ts";
import type { ProbeResult } from "./service_mode.ts";

/** Software beside us that makes rules for Services or policies. */
type ForeignSoftware = "kube-proxy" | "kube-router" | "klipper" | "other";

/** Something on this machine that an admin should know of. */
export interface HostFinding {
  /** Stable name for programs, e.g. `kube-proxy-alive`. */
  readonly id: string;
  /** `blocking`: two would fight over the same packets; `warning`: it may mislead; `info`: good to know. */
  readonly severity: "blocking" | "warning" | "info";
  readonly software?: ForeignSoftware;
  /** What was found, one sentence without a full stop. */
  readonly summary: string;
  /** Where it was seen, one line each: `chain KUBE-SVC-… (412) in nat, iptables-nft`. */
  readonly evidence: readonly string[];
  /** What an admin would do about it. */
  readonly cure?: string;
}

/** What a look at a part of the machine is made for. */
export interface HostCheckOptions {
  readonly signal?: AbortSignal;
}

/** What is looked for. */
export interface FindingOptions extends HostCheckOptions {
  /** `ports`: only whether a kube-proxy answers now, which takes 300 ms at most. @default {"everything"} */
  readonly scope?: "ports" | "everything";
  /** The mode that runs, whose rules are no findings. @default {none runs} */
  readonly mode?: BackendMode;
  /** Annotations of the own Node, where they are known: k3s tells there how it was started. */
  readonly nodeAnnotations?: Readonly<Record<string, string>>;
}

/** How kube-proxy's leftovers are removed. */
export interface KubeProxyRemovalOptions extends HostCheckOptions {
  /** Only tells what it would do. */
  readonly dryRun: boolean;
  /** The mode that runs, whose rules stay although some have kube-proxy's names. @default {none runs} */
  readonly mode?: BackendMode;
  /** Virtual servers in here are somebody else's (`ipvs.excludeCIDRs`). @default {[]} */
  readonly excludeCidrs?: readonly Cidr[];
}

/** The finding of a kube-proxy that answers; the only one of scope `ports`. */
export const KUBE_PROXY_ALIVE = "kube-proxy-alive";

/** The machine, as far as modes depend on it. Nothing here changes anything but where it says so. */
export interface HostChecks {
  /** Tries each thing that a mode needs, of both IP families; leaves nothing behind. Also for modes that this build lacks. */
  probeMode(mode: BackendMode, options?: HostCheckOptions): Promise<readonly ProbeResult[]>;
  /** What other software left or does on this machine. */
  findings(options?: FindingOptions): Promise<readonly HostFinding[]>;
  /**
   * Takes away what kube-proxy leaves in each of its modes, and nothing else: jumps first, then
   * chains, then sets. With `dryRun` only tells what it would do.
   */
  removeKubeProxy(options: KubeProxyRemovalOptions): Promise<CleanupReport>;
}
