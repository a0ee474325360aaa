import type { LoadedConfiguration } from "../../../config/load.ts";
import type { CleanupReport } from "../../../engine/data_plane.ts";
import type { Logger } from "../../../log/logger.ts";
import { messageOf } from "../../../log/message_of.ts";
import type { Cidr } from "../../../net/cidr.ts";
import { IP_FAMILIES } from "../../../net/ip_address.ts";
import type { BackendMode } from "../../../proxy/backend.ts";
import { askControl, ControlError } from "../../control/control_client.ts";
import { MORE_CONTROLLERS } from "../../../app/run/run_proxy.ts";
import type { Dependencies } from "../../../app/dependencies.ts";
import { excludedServers, findKubeProxyAlive, forgetModes } from "../../../app/handover.ts";
import { cleanUpDataProcesses } from "../../../app/run/relay_workers.ts";
import { idleBackendOptions } from "../../../app/run/plan_settings.ts";
import type { CommandContext } from "./command.ts";

/**
 * Removes everything that any mode of kube-relay, then kube-proxy, added to the machine, and nothing else.
 * Needs no cluster.
 */
export async function cleanupVerb(
  dependencies: Dependencies,
  { configuration, logger, endInOrder }: CommandContext,
): Promise<number> {
  const { relay, proxy } = configuration;
  const { hostChecks, print, complain } = dependencies;
  const { dryRun } = relay;
  const running = await findRunning(relay.controlSocket);
  if (running !== undefined) {
    complain(`${dryRun ? "Nothing would be removed now" : "Cannot clean up"}: ${running}\n`);
    if (dryRun) complain("Once it has ended:\n");
    if (!dryRun) return 1;
  }
  const signal = endInOrder();
  const reports = [];
  for await (const report of ownReports({ ...dependencies, logger }, configuration)) {
    signal.throwIfAborted();
    printCleanupReport(dependencies, report, { dryRun });
    reports.push(report);
  }
  // A failure only costs the next start a needless cleanup.
  if (!dryRun && reports.every(isDone)) await forgetModes(relay).catch(() => {});
  const alive = await findKubeProxyAlive(hostChecks, signal);
  if (alive) {
    complain(`${alive.summary} and will write its rules again; ${alive.cure ?? ""}\n`);
    for (const line of alive.evidence) complain(`  ${line}\n`);
  }
  // Whatever still has kube-proxy's names belongs to kube-proxy.
  const excludeCidrs = excludedServers(proxy);
  const foreign = await hostChecks.removeKubeProxy({ dryRun, excludeCidrs, signal });
  printCleanupReport(dependencies, foreign, { dryRun });
  reports.push(foreign);
  if (
    reports.every(({ removed, failed, kept = [] }) => [removed, failed, kept].flat().length === 0)
  ) {
    print("Nothing of kube-relay's or kube-proxy's is left on this machine.\n");
  }
  return reports.every(isDone) ? 0 : 1;
}

/** Finds a running kube-relay: a cleanup would break its clients, and it would not repair at once. */
async function findRunning(controlSocket: string): Promise<string | undefined> {
  try {
    const { pid } = await askControl(controlSocket, "/status", { brief: "" });
    return `kube-relay with process id ${pid} serves Services here; stop it first`;
  } catch (error) {
    if (error instanceof ControlError && error.kind === "not-running") return undefined;
    return `${messageOf(error)}; if it runs, stop it first, else remove that file`;
  }
}

/**
 * Cleans up the objects of every controller of this release, for Services in each mode and family.
 */
async function* ownReports(
  dependencies: Dependencies & { readonly logger: Logger },
  configuration: LoadedConfiguration,
): AsyncGenerator<CleanupReport> {
  // Before the addresses that they listen at.
  yield await cleanUpDataProcesses(dependencies, configuration);
  for (const each of MORE_CONTROLLERS) yield* each.cleanUp(dependencies, configuration);
  for (const createBackend of Object.values(dependencies.backends)) {
    for (const family of IP_FAMILIES) {
      await using backend = createBackend(
        dependencies,
        idleBackendOptions(configuration, family),
      );
      const { dryRun } = configuration.relay;
      yield await (dryRun ? backend.previewCleanup() : backend.cleanup());
    }
  }
}

function isDone({ failed }: CleanupReport): boolean {
  return failed.length === 0;
}

type Output = Pick<Dependencies, "print" | "complain">;

/** Prints a report; for a dry run also the shell commands. */
function printCleanupReport(
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
