/**
 * What the loop of a controller needs of a data plane, and what a data plane answers.
 *
 * @module
 */

/** An item of the plan, or one address of it, that could not be brought into effect. The others are. */
export interface Quarantined<Key> {
  readonly key: Key;
  /** The address concerned, e.g. `10.96.0.10:53/UDP`, where it is not the whole item. */
  readonly address?: string;
  /** What failed and why, with the cure where one is known. */
  readonly reason: string;
  /**
   * Set where the kernel refused it: from when on a sync tries it again, RFC 3339. Until then nothing of
   * the item is wanted in the kernel.
   */
  readonly retryAt?: string;
}

/** What one sync did. Counts, never estimates. */
export interface SyncReport<Key> {
  /** Whether everything was compared, or only what changed. */
  readonly full: boolean;
  /** Operations on the data plane, by name (`listen`, `close`, `rules`, `bytes` …); zero ones left out. */
  readonly operations: Readonly<Record<string, number>>;
  /** Everything that is in quarantine now, not only since this sync. */
  readonly quarantined: readonly Quarantined<Key>[];
}

/** What a cleanup did. */
export interface CleanupReport {
  /** One line for each thing removed, e.g. `address 10.96.0.1/32 on lo`. */
  readonly removed: readonly string[];
  /** What could not be removed, with the reason. */
  readonly failed: readonly string[];
  /** What was left on purpose, with the reason, e.g. a chain that other software refers to. */
  readonly kept?: readonly string[];
  /** Of a dry run: what it would run, each a command of a shell with its input and a line feed. */
  readonly commands?: readonly string[];
}

/**
 * What carries out plans. A constructor has no side effect; nothing is opened or run before `start()`.
 */
export interface DataPlane<Plan, Changes, Report> extends AsyncDisposable {
  /** Reads what the machine holds from an earlier run and adopts it. Nothing is torn down. */
  start(): Promise<void>;
  /**
   * Brings the data plane from what it holds to `plan`. `changes` are relative to the last sync that
   * did not throw. What cannot be had is quarantined in the report; a throw means that the outcome
   * is unknown or nothing was applied, and that the same changes come again.
   * The caller has one sync in flight at most.
   */
  sync(plan: Plan, changes: Changes): Promise<Report>;
  /** Another program has written where this one writes: what is there is compared soon. */
  recheck(): void;
  /** Removes everything that this data plane ever added to the machine, and nothing else. */
  cleanup(): Promise<CleanupReport>;
  /** What {@linkcode cleanup} would remove. Changes nothing. */
  previewCleanup(): Promise<CleanupReport>;
  /** Takes no new connections and waits for open ones, at most so long. Kernel state stays. */
  drain(timeoutMs: number): Promise<void>;
}
