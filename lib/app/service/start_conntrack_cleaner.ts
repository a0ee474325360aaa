/**
 * Decides whether this run has to look after the kernel's table of connections.
 *
 * @module
 */
import { createConntrack } from "../../os/conntrack.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import type { Backend } from "../../proxy/backend.ts";
import { ConntrackCleaner, type ConntrackCleanerDependencies } from "./conntrack_cleaner.ts";
import type { SyncObserver } from "./sync_observer.ts";
import type { TaskGroup } from "../../controller/task_group.ts";

/** What the cleaner stands on, but for the table itself. */
type StartConntrackCleanerDependencies =
  & Omit<ConntrackCleanerDependencies, "conntrack">
  & { readonly commands: CommandRunner };

/**
 * Starts a cleaner as a task, for backends that leave packets of known flows to the kernel. Returns
 * whom syncs have to be told to: the cleaner, or nobody.
 */
export function startConntrackCleaner(
  dependencies: StartConntrackCleanerDependencies,
  tasks: TaskGroup,
  { backends }: { readonly backends: readonly Pick<Backend, "usesConntrack">[] },
): readonly SyncObserver[] {
  if (!backends.some(({ usesConntrack }) => usesConntrack)) return [];
  const conntrack = createConntrack(dependencies.commands);
  const cleaner = new ConntrackCleaner({ ...dependencies, conntrack });
  tasks.run("conntrack", (signal) => cleaner.run(signal));
  return [cleaner];
}
