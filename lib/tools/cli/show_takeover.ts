import type { Dependencies } from "../../app/dependencies.ts";
import { findKubeProxyAlive } from "../../app/handover.ts";
import type { Cidr } from "../../net/cidr.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import { printCleanupReport } from "./print_cleanup_report.ts";

/** Prints the actions of `--takeover` without acting. */
export async function showTakeover(
  dependencies: Pick<Dependencies, "hostChecks" | "print" | "complain">,
  { signal, networkPolicy, ...options }: {
    readonly mode: BackendMode;
    /** Whether kube-relay would enforce NetworkPolicies. */
    readonly networkPolicy: boolean;
    readonly excludeCidrs: readonly Cidr[];
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { hostChecks, print } = dependencies;
  const alive = await findKubeProxyAlive(hostChecks, signal);
  print(alive ? `${alive.summary}:\n` : "No kube-proxy answers on this node.\n");
  for (const line of alive?.evidence ?? []) print(`  ${line}\n`);
  print("Services would be served first; then, for objects of kube-proxy on this machine:\n");
  const report = await hostChecks.removeKubeProxy({ dryRun: true, signal, ...options });
  if (report.removed.length === 0) print("there is nothing to remove.\n");
  printCleanupReport(dependencies, report, { dryRun: true });
  if (networkPolicy) await showPolicyTakeover(dependencies, signal);
  if (alive) print(`\nIt would write its rules again: ${alive.cure}\n`);
}

async function showPolicyTakeover(
  dependencies: Pick<Dependencies, "hostChecks" | "print" | "complain">,
  signal: AbortSignal,
): Promise<void> {
  const { hostChecks, print } = dependencies;
  print(
    "\nNetworkPolicies would be enforced first; then, for policy rules of kube-router or k3s:\n",
  );
  const report = await hostChecks.removeKubeRouterPolicies({ dryRun: true, signal });
  if (report.removed.length === 0) print("there is nothing to remove.\n");
  printCleanupReport(dependencies, report, { dryRun: true });
}
