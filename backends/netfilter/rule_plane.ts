/**
 * The life of a data plane whose rules the kernel applies: start, the watch for drift, repair and
 * removal, once for Services and policies.
 *
 * The watch notices when other programs remove or change objects in the kernel, and has them repaired.
 * Objects that a flush removes are checked often, which is cheap. Other changes are detected by a full
 * read, at an interval that grows with its cost.
 *
 * @module
 */
import type { CleanupReport, DataPlaneEdges } from "../../lib/engine/data_plane.ts";
import { type Change, Reconciler, type Target } from "../../lib/engine/reconciler.ts";
import type { LogFields } from "../../lib/log/logger.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { VerificationSchedule } from "./verification_schedule.ts";

/** Differences that a check of the kernel found and repaired. */
export interface DriftFigures {
  readonly kind: "chain" | "rule" | "set" | "virtual_server" | "address";
  readonly found: number;
  readonly repaired: number;
}

/** The edges of a data plane that writes rules. */
export interface RulePlaneEdges extends DataPlaneEdges {
  /** Called when objects in the kernel were missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** How rules are watched for drift. */
export interface RuleWatch {
  /** Log messages: a flush was detected, a comparison found something, a look or a comparison failed. */
  readonly texts: Readonly<Record<"changed" | "failed" | "lost", string>>;
  /** Time until the next look, milliseconds. */
  readonly pauseMs: number;
  /** Between two full comparisons that cost nothing, milliseconds. @default {five minutes} */
  readonly shortestMs?: number;
  /** The assumed cost of a comparison for each ServicePort, before it is measured. @default {0} */
  readonly readingMs?: number;
  /** Checks for a flush: returns log fields if something is missing, else `undefined`. */
  look(): Promise<LogFields | undefined>;
  /** What a full comparison found and repaired. */
  found(changes: readonly Change<string>[]): {
    readonly counts: Readonly<Partial<Record<DriftFigures["kind"], number>>>;
    /** Of the log message. */
    readonly fields: LogFields;
  };
}

/** The machine as it was found. */
export interface FoundMachine<Kept> {
  readonly target: Kept;
  readonly watch: RuleWatch;
  /** Whether no rules of an earlier run, or of kube-proxy, existed. @default {they may exist} */
  readonly isFresh?: boolean;
}

/** A target that counts its work. */
export interface CountingTarget<Owner extends string> extends Target<string, unknown, Owner> {
  /** The work since {@linkcode countAnew}, by name, without zeros. */
  readonly operations: Readonly<Record<string, number>>;
  countAnew(): void;
}

/** A comparison that may wait begins after so many times the duration of the last one. */
const REST_PARTS = 10;

/** A data plane of one IP family. Runs nothing before it is started. */
export abstract class RulePlane<Kept extends CountingTarget<Owner>, Owner extends string> {
  readonly family: IpFamily;
  /** Serializes syncs, checks of the kernel and repairs. */
  protected readonly turns = new OneAtATime();
  /** Absent before `start()`, as the one below. */
  protected target: Kept | undefined;
  protected engine: Reconciler<string, unknown, Owner> | undefined;
  protected isFresh = false;
  protected readonly edges: RulePlaneEdges;
  #watch: RuleWatch | undefined;
  #stop = new AbortController();
  #watching: Promise<void> | undefined;
  /** Ends the pause between two checks. */
  #wake = new AbortController();
  #schedule: VerificationSchedule | undefined;
  /** Until then, comparisons that may wait cost a small part of the time. */
  protected restsUntil = 0;
  /** Whether a comparison failed or was requested: the next check repeats it. */
  #mustCompare = false;
  /** Whether the next check runs at once. */
  #isAsked = false;

  constructor(edges: RulePlaneEdges, { family }: { readonly family: IpFamily }) {
    this.edges = edges;
    this.family = family;
  }

  /** Reads the machine. Throws if rules cannot be written on it. */
  protected abstract prepare(): Promise<FoundMachine<Kept>>;
  /**
   * Whether the next sync compares everything, or writes what is left of a plan: then not every
   * difference is drift. Before the first plan there is nothing to compare with.
   */
  protected abstract readonly hasUnwrittenPlan: boolean;
  protected abstract remove(options: { readonly dryRun: boolean }): Promise<CleanupReport>;

  /** Leaves the rules of an earlier run to the first sync, which knows the desired state. */
  async start(): Promise<void> {
    const { target, watch, isFresh = false } = await this.prepare();
    this.target = target;
    this.engine = new Reconciler(this.edges, target);
    this.isFresh = isFresh;
    this.#watch = watch;
    const { shortestMs } = watch;
    this.#schedule = new VerificationSchedule(this.edges.random, shortestMs ? { shortestMs } : {});
    this.#stop = new AbortController();
    this.#watching = this.#run(watch, this.engine);
  }

  /** Reads everything and writes the difference, which it returns. Runs while no sync is pending. */
  protected async verify(): Promise<readonly Change<Owner>[]> {
    this.target?.countAnew();
    return await this.engine?.verify() ?? [];
  }

  /** Plans the first comparison of a plan with so many items, unless one is planned. */
  protected expectComparison(items: number): void {
    this.#schedule?.expect(this.edges.clock.now(), items * (this.#watch?.readingMs ?? 0));
  }

  repair(): Promise<Readonly<Record<string, number>>> {
    return this.turns.run(async () => {
      if (this.hasUnwrittenPlan) return {};
      await this.verify();
      const { reads: _, ...operations } = this.target?.operations ?? {};
      return operations;
    });
  }

  /** Has the watch compare everything now. A slow comparison runs only once in minutes. */
  recheck(): void {
    this.#mustCompare = true;
    this.#isAsked = true;
    this.#wake.abort();
  }

  /** Also stops the watch, which would restore the removed rules. */
  async cleanup(): Promise<CleanupReport> {
    await this.drain();
    return await this.turns.run(() => {
      this.engine?.forget();
      return this.remove({ dryRun: false });
    });
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.remove({ dryRun: true });
  }

  /** Ends after a repair in progress. The kernel keeps open connections, whether this process runs or not. */
  async drain(): Promise<void> {
    this.#stop.abort();
    this.#wake.abort();
    await this.#watching;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.drain();
  }

  async #run(watch: RuleWatch, engine: Reconciler<string, unknown, Owner>): Promise<void> {
    const { clock } = this.edges;
    const logger = this.edges.logger.with({ component: "drift_watch" });
    for (;;) {
      if (!this.#isAsked && !this.#stop.signal.aborted) {
        this.#wake = new AbortController();
        await clock.sleep(watch.pauseMs, this.#wake.signal).catch(() => {});
      }
      this.#isAsked = false;
      if (this.#stop.signal.aborted) return;
      // Before the first sync, and after one that failed, the next one compares everything.
      if (!engine.isKnown && !this.#mustCompare) continue;
      try {
        if (!this.#mustCompare) {
          // A sync that failed comes again, and compares everything: its own changes are no drift.
          const lost = await this.turns.run(async () =>
            this.hasUnwrittenPlan ? undefined : await watch.look()
          );
          if (lost !== undefined) logger.warn(watch.texts.lost, lost);
          else if (this.#schedule?.isDue(clock.now()) === false) continue;
        }
        // Reset first, so that a request during the comparison is not lost.
        this.#mustCompare = false;
        const found = await this.#compare(watch);
        if (found === undefined) continue;
        const { counts, fields } = found;
        const different = Object.entries(counts).filter(([, count]) => count > 0);
        if (different.length > 0) logger.warn(watch.texts.changed, fields);
        for (const [kind, count] of different) {
          const figures = { kind: kind as DriftFigures["kind"], found: count, repaired: count };
          this.edges.onDrift?.(figures);
        }
      } catch (error) {
        logger.warn(watch.texts.failed, { error });
        // The next check covers everything that the failure left unknown.
        if (!engine.isKnown) this.#mustCompare = true;
      }
    }
  }

  /**
   * Returns what was repaired; `undefined` = too early, since unwritten changes of a sync differ too.
   */
  #compare(watch: RuleWatch): Promise<ReturnType<RuleWatch["found"]> | undefined> {
    const { clock } = this.edges;
    return this.turns.run(async () => {
      let changes: readonly Change<Owner>[] | undefined;
      try {
        // The sync is tried again and compares everything.
        if (this.hasUnwrittenPlan) return undefined;
        const startedAt = clock.now();
        changes = await this.verify();
        const durationMs = clock.now() - startedAt;
        this.#schedule?.verified(clock.now(), durationMs);
        this.restsUntil = clock.now() + durationMs * REST_PARTS;
        // In this turn: the next sync counts from zero, and may want something else.
        return watch.found(changes);
      } finally {
        if (changes === undefined) this.#mustCompare = true;
      }
    });
  }
}
