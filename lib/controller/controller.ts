/**
 * What a run knows of a controller, whatever it controls.
 *
 * @module
 */
import type { InterfaceAddress } from "../os/network.ts";
import type { RunnerActivity } from "./sync_runner.ts";
import type { TaskGroup } from "./task_group.ts";

/** Follows objects and keeps the machine in step with them. A constructor has no side effect. */
export interface Controller extends AsyncDisposable {
  readonly name: "service";
  /** What each of its loops is doing, for the watchdog. */
  readonly activity: readonly RunnerActivity[];
  /** Adopts what the machine holds from an earlier run. The first sync waits for the objects. */
  start(tasks: TaskGroup): Promise<void>;
  /** Takes the addresses of the machine, sorted by address, of both families. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void;
  /** Ends syncing. What is in effect stays. */
  stop(): Promise<void>;
  /** Takes no new connections and waits for open ones, at most so long. */
  drain(timeoutMs: number): Promise<void>;
}
