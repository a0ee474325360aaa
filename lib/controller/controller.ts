import type { IpAddress } from "../net/ip_address.ts";
import type { RunnerActivity } from "./sync_runner.ts";
import type { TaskGroup } from "./task_group.ts";

/** Follows objects and keeps the machine in sync with them. A constructor has no side effect. */
export interface Controller extends AsyncDisposable {
  readonly name: "service";
  /** The activity of each loop, for the watchdog. */
  readonly activity: readonly RunnerActivity[];
  /** Adopts the machine's state from an earlier run. The first sync waits for the objects. */
  start(tasks: TaskGroup): Promise<void>;
  /** Takes the addresses of the machine, sorted, of both families. */
  onInterfaceAddresses(addresses: readonly IpAddress[]): void;
  /** Stops syncing. The applied state stays. */
  stop(): Promise<void>;
  /** Accepts no new connections and waits for open ones until the timeout. */
  drain(timeoutMs: number): Promise<void>;
}
