/**
 * What the application asks of the machine before a mode is chosen, and for `doctor`. Owned by its
 * caller; `backends/mod.ts` answers.
 *
 * @module
 */
import type { BackendMode, CleanupReport, ProbeResult } from "./backend.ts";

/** Software beside us that makes rules for Services or policies. */
export type ForeignSoftware = "kube-proxy" | "kube-router" | "klipper" | "other";

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

/** The machine, as far as modes depend on it. Nothing here changes anything but where it says so. */
export interface HostChecks {
  /** Tries each thing that a mode needs, of both IP families; leaves nothing behind. Also for modes that this build lacks. */
  probeMode(mode: BackendMode, options?: HostCheckOptions): Promise<readonly ProbeResult[]>;
  /** What other software left or does on this machine. */
  findings(options?: HostCheckOptions): Promise<readonly HostFinding[]>;
  /**
   * Takes away what kube-proxy leaves in each of its modes, and nothing else: jumps first, then
   * chains, then sets. With `dryRun` only tells what it would do.
   */
  removeKubeProxy(options: HostCheckOptions & { readonly dryRun: boolean }): Promise<CleanupReport>;
}
