import type { CleanupReport } from "../../engine/data_plane.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { findKubeProxyAlive } from "../../app/handover.ts";
import type { Cidr } from "../../net/cidr.ts";
import type { BackendMode } from "../../proxy/backend.ts";

type Output = Pick<Dependencies, "print" | "complain">;

/** Prints a report; for a dry run also the shell commands. */
export function printCleanupReport(
  { print, complain }: Output,
  { removed, failed, kept = [], commands = [] }: CleanupReport,
  { dryRun }: { readonly dryRun: boolean },
): void {
  for (const line of removed) print(`${dryRun ? "would remove" : "removed"} ${line}\n`);
  for (const line of kept) print(`left ${line}\n`);
  for (const line of failed) complain(`Cannot remove ${line}\n`);
  if (commands.length === 0) return;
  print("\nby these commands:\n\n");
  for (const command of commands) print(command);
}

/** Prints the actions of `--takeover` without acting. `networkPolicy`: whether policies would be enforced. */
export async function showTakeover(
  dependencies: Output & Pick<Dependencies, "hostChecks">,
  { signal, networkPolicy, ...options }: {
    readonly mode: BackendMode;
    readonly networkPolicy: boolean;
    readonly excludeCidrs: readonly Cidr[];
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { hostChecks, print } = dependencies;
  const show = (report: CleanupReport) => {
    if (report.removed.length === 0) print("there is nothing to remove.\n");
    printCleanupReport(dependencies, report, { dryRun: true });
  };
  const alive = await findKubeProxyAlive(hostChecks, signal);
  print(alive ? `${alive.summary}:\n` : "No kube-proxy answers on this node.\n");
  for (const line of alive?.evidence ?? []) print(`  ${line}\n`);
  print("Services would be served first; then, for objects of kube-proxy on this machine:\n");
  show(await hostChecks.removeKubeProxy({ dryRun: true, signal, ...options }));
  if (networkPolicy) {
    print(
      "\nNetworkPolicies would be enforced first; then, for policy rules of kube-router or k3s:\n",
    );
    show(await hostChecks.removeKubeRouterPolicies({ dryRun: true, signal }));
  }
  if (alive) print(`\nIt would write its rules again: ${alive.cure}\n`);
}
