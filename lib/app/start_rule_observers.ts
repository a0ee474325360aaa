/**
 * What modes that write rules need beside their backends.
 *
 * @module
 */
import { ContestedAddresses } from "./contested_addresses.ts";
import {
  startConntrackCleaner,
  type StartConntrackCleanerDependencies,
} from "./start_conntrack_cleaner.ts";
import type { Backend } from "../proxy/backend.ts";
import type { SyncObserver } from "./sync_observer.ts";
import type { TaskGroup } from "./task_group.ts";

/**
 * Starts what has to be started, as tasks. Returns whom syncs have to be told to: nobody for a mode
 * that forwards by itself, and so knows of each connection and of each address that it can't have.
 */
export function startRuleObservers(
  dependencies: StartConntrackCleanerDependencies,
  tasks: TaskGroup,
  { backends }: { readonly backends: readonly Pick<Backend, "usesConntrack">[] },
): readonly SyncObserver[] {
  if (!backends.some(({ usesConntrack }) => usesConntrack)) return [];
  return [
    ...startConntrackCleaner(dependencies, tasks, { backends }),
    new ContestedAddresses(dependencies),
  ];
}
