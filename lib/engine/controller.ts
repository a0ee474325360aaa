import type { KindSpec, KubeObject } from "../api/kind.ts";
import type { InterfaceAddress } from "../os/network.ts";
import type { Quarantined } from "./data_plane.ts";
import type { ControllerName, LoopId } from "./loop_id.ts";
import type { TaskGroup } from "./task_group.ts";

/** A kind that a controller subscribed to. */
export interface ControllerKind {
  readonly spec: KindSpec;
  /**
   * The time for which the first sync waits for these objects after all kinds without a limit are
   * known. @default {without limit}
   */
  readonly waitMs?: number;
  /** The subscriptions to use. @default {the subscriptions that the controllers of a run share} */
  readonly informers?: FollowedKinds;
}

/** The subscriptions to kinds, and their known objects. */
export interface FollowedKinds extends
  Iterable<{
    readonly spec: KindSpec;
    /** The handler takes the events of the kind, whatever its objects are. */
    readonly informer: {
      addHandler(
        handler: Readonly<Record<"onAdd" | "onDelete" | "onSynced" | "onUpdate", () => void>>,
      ): void;
    };
  }> {
  of<T extends KubeObject>(spec: KindSpec<T>): { values(): Iterable<T> };
  /** Whether all objects of these kinds have been delivered once. */
  synced(specs?: readonly KindSpec[]): boolean;
}

/** The activity of a loop, for the watchdog. Times are those of the clock's `now()`. */
export interface LoopActivity {
  /** Since when a request waits for its sync. */
  readonly pendingSince?: number;
  /** Since when a sync is in flight. */
  readonly runningSince?: number;
}

/** The state of a loop, for `status`. */
export interface LoopStatus {
  readonly family: LoopId["family"];
  /** Present if the loop has another name than its controller. */
  readonly controller?: ControllerName;
  /** Describes the data plane. */
  readonly summary: string;
  readonly lastSync?: {
    /** RFC 3339. */
    readonly at: string;
    readonly durationMs: number;
    readonly full: boolean;
    readonly operations: Readonly<Record<string, number>>;
  };
  /** Whether changes wait for a sync. */
  readonly pending: boolean;
  /** Failed syncs since the last successful one. */
  readonly failures: number;
  readonly lastError?: string;
  readonly quarantined: readonly Quarantined<string>[];
}

/** The state of a controller. */
export interface ControllerStatus {
  readonly controller: ControllerName;
  readonly families: readonly LoopStatus[];
  /** Further facts, e.g. `Policies` and `12, of 40 pods on this node`. */
  readonly facts: readonly { readonly name: string; readonly text: string }[];
}

/** A source of objects. */
export interface StatusSource {
  readonly name: string;
  /** E.g. `watching`, `3 objects`. */
  readonly state: string;
  /** One line each. */
  readonly problems: readonly string[];
}

/**
 * Follows objects and keeps the machine in sync with them. A constructor subscribes to objects and
 * has no other side effect.
 */
export interface Controller extends AsyncDisposable {
  readonly name: ControllerName;
  /** The kinds that it plans from. Only these are listed and watched. */
  readonly kinds: readonly ControllerKind[];
  /** The activity of each loop, for the watchdog. */
  readonly activity: readonly LoopActivity[];
  /** Adopts the machine's state from an earlier run. Writes nothing. */
  start(tasks: TaskGroup): Promise<void>;
  /** Permits the first sync. The run calls it once, when the objects of its kinds are known. */
  open(): void;
  /** Takes the addresses of the machine, sorted by address, of both families. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void;
  /**
   * Whether it added an address to an interface, so that the address is no address of the node.
   * @default {it added none}
   */
  ownsAddress?(address: InterfaceAddress): boolean;
  /** Called after a changed configuration file has taken effect. @default {nothing} */
  onConfiguration?(): void;
  /** Stops syncing. The applied state stays. */
  stop(): Promise<void>;
  /** Accepts no new connections and waits for open ones until the timeout. */
  drain(timeoutMs: number): Promise<void>;
  /** Returns its state; `brief` omits parts that grow with the number of objects. */
  status(options: { readonly brief: boolean }): Promise<ControllerStatus>;
  /** Sets the metrics that are only collected for a scrape. */
  collectMetrics?(): Promise<void>;
}
