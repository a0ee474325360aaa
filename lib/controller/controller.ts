/**
 * What a run knows of a controller, whatever it controls.
 *
 * @module
 */
import type * as v from "valibot";
import type { KindSpec } from "../api/kind.ts";
import type { InterfaceAddress } from "../os/network.ts";
import type { Quarantined } from "./data_plane.ts";
import type { ControllerName, LoopId } from "./loop_id.ts";
import type { RunnerActivity } from "./sync_runner.ts";
import type { TaskGroup } from "./task_group.ts";

/** A kind that a controller has subscribed to. */
export interface ControllerKind {
  readonly spec: KindSpec;
  /**
   * How long the first sync waits for these objects once those without a limit are known.
   * @default {without limit}
   */
  readonly waitMs?: number;
}

/** How a loop is doing, for `status`. */
export interface LoopStatus {
  readonly family: LoopId["family"];
  /** What the data plane is. */
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

/** How a controller is doing. */
export interface ControllerStatus {
  readonly controller: ControllerName;
  readonly families: readonly LoopStatus[];
  /** What else is to be said of it, e.g. `Policies` and `12, of 40 pods on this node`. */
  readonly facts: readonly { readonly name: string; readonly text: string }[];
}

/** What a controller adds to a dump: only fields of the schema are written. */
export interface DumpSection {
  readonly schema: v.GenericSchema;
  readonly value: unknown;
}

/**
 * Answers a GET request on the control socket. The result is sent as JSON, in pieces; `signal` is
 * aborted when the client has gone.
 */
export type ControlRoute = (query: URLSearchParams, signal?: AbortSignal) => Promise<unknown>;

/** By path, e.g. `/status`. */
export type ControlRoutes = Readonly<Record<`/${string}`, ControlRoute>>;

/**
 * Follows objects and keeps the machine in step with them. A constructor subscribes to objects and has
 * no other side effect.
 */
export interface Controller extends AsyncDisposable {
  readonly name: ControllerName;
  /** What it plans from; nothing else is listed or watched for it. */
  readonly kinds: readonly ControllerKind[];
  /** What each of its loops is doing, for the watchdog. */
  readonly activity: readonly RunnerActivity[];
  /** What it answers on the control socket. @default {nothing} */
  readonly routes?: ControlRoutes;
  /** Adopts what the machine holds from an earlier run. Writes nothing. */
  start(tasks: TaskGroup): Promise<void>;
  /** The objects of its kinds are known: the first sync may run. The run calls it, once. */
  open(): void;
  /** Takes the addresses of the machine, sorted by address, of both families. */
  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void;
  /** Ends syncing. What is in effect stays. */
  stop(): Promise<void>;
  /** Takes no new connections and waits for open ones, at most so long. */
  drain(timeoutMs: number): Promise<void>;
  /** `brief` omits what grows with the number of objects. */
  status(options: { readonly brief: boolean }): Promise<ControllerStatus>;
  /** Inputs of its plan other than objects. */
  dumpInputs(): DumpSection;
  /** Sets the metrics that are only collected for a scrape. */
  collectMetrics?(): Promise<void>;
}
