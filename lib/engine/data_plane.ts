import type { Logger } from "../log/logger.ts";
import type { Clock } from "../os/clock.ts";
import type { CommandRunner } from "../os/command_runner.ts";

/** The edges of a data plane that changes the machine by programs. */
export interface DataPlaneEdges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly logger: Logger;
  /** From 0 to 1, as `Math.random`. */
  readonly random: () => number;
}

/** An item of the plan, or one of its addresses, that could not be applied. All others were. */
export interface Quarantined<Key> {
  readonly key: Key;
  /** The address, e.g. `10.96.0.10:53/UDP`, if not the whole item is affected. */
  readonly address?: string;
  /** The failure and its reason, with the remedy if known. */
  readonly reason: string;
  /**
   * Present if the kernel refused it: the time of the next attempt, RFC 3339. Until then, nothing
   * of the item is applied.
   */
  readonly retryAt?: string;
}

/** The result of one sync. Counts, never estimates. */
export interface SyncReport<Key> {
  /** Whether everything was compared, or only what changed. */
  readonly full: boolean;
  /**
   * Operations on the data plane, by name (`listen`, `close`, `rules`, `bytes` …), without zeros.
   */
  readonly operations: Readonly<Record<string, number>>;
  /** All items in quarantine, not only those of this sync. */
  readonly quarantined: readonly Quarantined<Key>[];
  /**
   * Present if the data plane wrote only a part of the plan, so that other changes do not wait. It
   * knows the rest; the next sync, which runs at once, continues even if nothing changed.
   */
  readonly isUnfinished?: true;
}

/** The result of a cleanup. */
export interface CleanupReport {
  /** One line for each removed object, e.g. `address 10.96.0.1/32 on lo`. */
  readonly removed: readonly string[];
  /** The objects that could not be removed, with the reason. */
  readonly failed: readonly string[];
  /** The objects kept intentionally, with the reason, e.g. a chain that other software refers to. */
  readonly kept?: readonly string[];
  /** The commands of a dry run, each as a shell command with its input and a line feed. */
  readonly commands?: readonly string[];
}

/** Applies plans. A constructor has no side effect; nothing is opened or run before `start()`. */
export interface DataPlane<Plan, Changes, Report> extends AsyncDisposable {
  /** Adopts the machine's state from an earlier run. Removes nothing. */
  start(): Promise<void>;
  /**
   * Updates the data plane to `plan`. `changes` are relative to the last sync that did not throw.
   * Items that cannot be applied are quarantined in the report. An error means that the outcome is
   * unknown or nothing was applied, and the next sync gets the same changes again. The caller has
   * one sync in flight at most.
   */
  sync(plan: Plan, changes: Changes): Promise<Report>;
  /** Another program wrote to the data plane: compares it soon. */
  recheck(): void;
  /** Removes everything that this data plane ever added to the machine, and nothing else. */
  cleanup(): Promise<CleanupReport>;
  /** Returns what {@linkcode cleanup} would remove. Changes nothing. */
  previewCleanup(): Promise<CleanupReport>;
  /** Accepts no new connections and waits for open ones until the timeout. Kernel state stays. */
  drain(timeoutMs: number): Promise<void>;
}
