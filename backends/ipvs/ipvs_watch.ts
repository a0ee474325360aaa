/**
 * Looks at the kernel from time to time: takes away what has drained, and puts back what somebody else
 * has taken away.
 *
 * @module
 */
import type { IptablesRunner } from "../netfilter/iptables_runner.ts";
import type { OneAtATime } from "../../lib/os/one_at_a_time.ts";
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import type { DriftFigures } from "../netfilter/drift_figures.ts";
import { VerificationSchedule } from "../netfilter/verification_schedule.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";
import type { IpvsWriter } from "./ipvs_writer.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import type { IpvsStep } from "./steps.ts";
import { WriteFigures } from "./write_figures.ts";

/** What the watch stands on. */
interface IpvsWatchDependencies extends Omit<RuleBackendDependencies, "commands"> {
  readonly runner: Pick<IpvsRunner, "deviceAddresses" | "servers">;
  readonly iptables: Pick<IptablesRunner, "hasRules">;
  readonly writer: IpvsWriter;
  /** What else writes. */
  readonly turns: OneAtATime;
}

/** How often it looks. */
interface IpvsWatchOptions {
  /** Longest time between two looks, milliseconds. */
  readonly periodMs: number;
}

/** While connections are waited for. */
const DRAIN_LOOK_MS = 5_000;
const LONGEST_PAUSE_MS = 30_000;
const SHORTEST_PAUSE_MS = 1_000;

/** What each tool writes. */
const KINDS: Readonly<Record<IpvsStep["tool"], DriftFigures["kind"]>> = {
  ipset: "set",
  iptables: "rule",
  ipvsadm: "virtual_server",
  ip: "address",
};

/** Looks after one family, from `start()` to `stop()`. */
export class IpvsWatch {
  readonly #dependencies: IpvsWatchDependencies;
  readonly #options: IpvsWatchOptions;
  /** Sets and single rules are only seen by reading everything. */
  readonly #schedule: VerificationSchedule;
  #abort: AbortController | undefined;
  #running: Promise<void> | undefined;
  /** Whether a comparison failed, or was asked for: it comes at the next look. */
  #isUnfinished = false;

  constructor(dependencies: IpvsWatchDependencies, options: IpvsWatchOptions) {
    const logger = dependencies.logger.with({ component: "ipvs_watch" });
    this.#dependencies = { ...dependencies, logger };
    this.#options = options;
    this.#schedule = new VerificationSchedule(dependencies.random);
  }

  /** Begins to look. */
  start(): void {
    this.#abort = new AbortController();
    this.#running = this.#run(this.#abort.signal);
  }

  /** Everything is compared at the next look. */
  recheck(): void {
    this.#isUnfinished = true;
  }

  /** Ends looking; a repair that is under way comes to its end. */
  async stop(): Promise<void> {
    this.#abort?.abort();
    await this.#running;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { clock, logger, turns, writer } = this.#dependencies;
    this.#schedule.expect(clock.now(), 0);
    for (;;) {
      await clock.sleep(this.#pauseMs, signal).catch(() => {});
      if (signal.aborted) return;
      // Before the first sync, and after one that failed, the next one compares everything.
      if (!writer.isKnown && !this.#isUnfinished) continue;
      try {
        await turns.run(() => this.#look());
      } catch (error) {
        logger.warn("Cannot check the virtual servers; trying again", { error });
      }
    }
  }

  get #pauseMs(): number {
    const usual = Math.min(this.#options.periodMs, LONGEST_PAUSE_MS);
    const wanted = this.#dependencies.writer.draining > 0 ? Math.min(usual, DRAIN_LOOK_MS) : usual;
    return Math.max(wanted, SHORTEST_PAUSE_MS);
  }

  async #look(): Promise<void> {
    const { clock, logger, runner, writer } = this.#dependencies;
    // A sync that failed comes again, and compares everything: its own changes are no drift.
    if (writer.isPending) return;
    const seen = await runner.servers(writer.servers);
    const figures = new WriteFigures();
    const drained = await writer.drain(seen, figures).catch((error) => {
      // What the kernel holds is unknown now: the next look compares all of it.
      this.#isUnfinished = true;
      throw error;
    });
    if (drained > 0) logger.verbose(2, "Took away what has drained", { drained });
    const lost = await this.#lost(seen);
    if (lost !== undefined) {
      logger.warn("Another program removed objects of kube-relay; repairing", { lost });
    }
    const isDue = lost !== undefined || this.#isUnfinished || this.#schedule.isDue(clock.now());
    if (isDue) await this.#verify();
  }

  /** What is no longer there, for a person; `undefined` = nothing was missed. */
  async #lost(seen: readonly SeenServer[]): Promise<string | undefined> {
    const { iptables, runner, writer } = this.#dependencies;
    const there = new Set(seen.map(({ key }) => key));
    for (const key of writer.servers) if (!there.has(key)) return `virtual server ${key}`;
    const addresses = await runner.deviceAddresses();
    if (addresses === undefined) return "the device";
    // The other IP family may have made it anew, without the addresses of this one.
    for (const address of writer.addresses) {
      if (!addresses.has(address)) return `address ${address}`;
    }
    return await iptables.hasRules("nat", "KUBE-SERVICES") ? undefined : "rules of table nat";
  }

  async #verify(): Promise<void> {
    const { clock, logger, onDrift, writer } = this.#dependencies;
    const figures = new WriteFigures();
    this.#isUnfinished = true;
    writer.forget();
    await writer.write(figures);
    this.#isUnfinished = false;
    this.#schedule.verified(clock.now(), 0);
    const { reads: _, processes, ...found } = figures.operations;
    if (processes === undefined) return;
    logger.warn("Another program removed or changed objects of kube-relay; repairing", {
      ...found,
    });
    for (const [tool, kind] of Object.entries(KINDS)) {
      const count = found[tool] ?? 0;
      if (count > 0) onDrift?.({ kind, found: count, repaired: count });
    }
  }
}
