/**
 * The life of a data plane whose rules the kernel applies: start, the watch for drift, repair and
 * removal, once for Services and policies.
 *
 * @module
 */
import type { CleanupReport, DataPlaneEdges } from "../../lib/engine/data_plane.ts";
import { type Change, Reconciler, type Target } from "../../lib/engine/reconciler.ts";
import type { LogFields } from "../../lib/log/logger.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { type DriftFigures, type DriftFound, type DriftTexts, DriftWatch } from "./drift_watch.ts";
import { VerificationSchedule } from "./verification_schedule.ts";

/** The edges of a data plane that writes rules. */
export interface RulePlaneEdges extends DataPlaneEdges {
  /** Called when objects in the kernel were missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** How rules are watched for drift. */
export interface RuleWatch {
  readonly texts: DriftTexts;
  /** Time until the next look, milliseconds. */
  readonly pauseMs: number;
  /** Between two full comparisons that cost nothing, milliseconds. @default {the usual one} */
  readonly shortestMs?: number;
  /** The assumed cost of a comparison for each ServicePort, before it is measured. @default {0} */
  readonly readingMs?: number;
  /** Checks for a flush: returns log fields if something is missing, else `undefined`. */
  look(): Promise<LogFields | undefined>;
  /** What a full comparison found and repaired. */
  found(changes: readonly Change<string>[]): DriftFound;
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
  #drift: DriftWatch | undefined;
  #expectComparison: (items: number) => void = () => {};

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
  protected abstract readonly hasPendingSync: boolean;
  protected abstract remove(options: { readonly dryRun: boolean }): Promise<CleanupReport>;

  /** Leaves the rules of an earlier run to the first sync, which knows the desired state. */
  async start(): Promise<void> {
    const { clock, random } = this.edges;
    const { target, watch, isFresh = false } = await this.prepare();
    const { shortestMs, readingMs = 0, texts } = watch;
    const schedule = new VerificationSchedule(random, shortestMs ? { shortestMs } : {});
    const engine = new Reconciler(this.edges, target);
    const isPending = () => this.hasPendingSync;
    const subject = {
      get isKnown() {
        return engine.isKnown;
      },
      get isPending() {
        return isPending();
      },
      get pauseMs() {
        return watch.pauseMs;
      },
      // A sync that failed comes again, and compares everything: its own changes are no drift.
      look: () => this.turns.run(async () => isPending() ? undefined : await watch.look()),
      verify: async () => watch.found(await this.verify()),
    };
    this.#drift = new DriftWatch({ ...this.edges, schedule, subject, turns: this.turns }, texts);
    this.#drift.start();
    this.target = target;
    this.engine = engine;
    this.isFresh = isFresh;
    this.#expectComparison = (items) => schedule.expect(clock.now(), items * readingMs);
  }

  /** Reads everything and writes the difference, which it returns. Runs while no sync is pending. */
  protected async verify(): Promise<readonly Change<Owner>[]> {
    this.target?.countAnew();
    return await this.engine?.verify() ?? [];
  }

  /** Plans the first comparison of a plan with so many items, unless one is planned. */
  protected expectComparison(items: number): void {
    this.#expectComparison(items);
  }

  repair(): Promise<Readonly<Record<string, number>>> {
    return this.turns.run(async () => {
      if (this.hasPendingSync) return {};
      await this.verify();
      const { reads: _, ...operations } = this.target?.operations ?? {};
      return operations;
    });
  }

  recheck(): void {
    this.#drift?.recheck();
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

  /** The kernel keeps open connections, whether this process runs or not. */
  async drain(): Promise<void> {
    await this.#drift?.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#drift?.stop();
  }
}
