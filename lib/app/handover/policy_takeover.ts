import type { Logger } from "../../log/logger.ts";
import type { HostChecks } from "../../proxy/host_checks.ts";

interface PolicyTakeoverDependencies {
  readonly hostChecks: Pick<HostChecks, "removeKubeRouterPolicies">;
  readonly logger: Logger;
}

/**
 * Removes the policy rules of kube-router or k3s, for `--takeover`. The caller calls it once, after
 * the first sync of kube-relay's policies in every IP family, so that pods always have policies.
 * Rejects only when aborted, because the node is protected even if these rules remain.
 */
export async function takeOverPolicies(
  { hostChecks, logger }: PolicyTakeoverDependencies,
  signal: AbortSignal,
): Promise<void> {
  try {
    const report = await hostChecks.removeKubeRouterPolicies({ dryRun: false, signal });
    const { removed, failed, kept = [] } = report;
    for (const what of removed) {
      logger.verbose(1, "Removed policy objects of kube-router", { what });
    }
    for (const what of kept) logger.info("Policy objects of kube-router remain", { what });
    for (const what of failed) logger.warn("Cannot remove policy objects of kube-router", { what });
    logger.info("Removed policy rules of kube-router", {
      things: removed.length,
      failed: failed.length,
    });
  } catch (error) {
    signal.throwIfAborted();
    logger.error("Cannot remove policy rules of kube-router", { error });
  }
}
