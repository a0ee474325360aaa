/**
 * BGP by a BIRD of its own. BIRD is a service besides kube-relay: sessions and routes stay while
 * kube-relay restarts, and BIRD restarts gracefully by itself.
 *
 * @module
 */
import type { CleanupReport, DataPlaneEdges, SyncReport } from "../../lib/controller/data_plane.ts";
import { SyncFailure } from "../../lib/controller/sync_failure.ts";
import type { LogFields, Logger } from "../../lib/log/logger.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { connectUnix } from "../../lib/os/network.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import type { BgpPlan } from "../../lib/routing/bgp_plan.ts";
import { type DriftFound, type DriftSubject, DriftWatch } from "../netfilter/drift_watch.ts";
import { VerificationSchedule } from "../netfilter/verification_schedule.ts";
import { type BgpItem, birdConfig } from "./bird_config.ts";
import { BirdControl, type BirdControlDependencies } from "./bird_control.ts";
import { type BgpSession, describeSession } from "./bird_status.ts";
import { type BirdPaths, BirdWriter } from "./bird_writer.ts";
import { cleanUpBird } from "./cleanup.ts";
import { type BgpDifference, compareBird, readSentPrefixes, type SentPrefixes } from "./compare.ts";

/** The edges of the data plane. */
export interface BirdDependencies extends DataPlaneEdges {
  /** @default {the machine's Unix sockets} */
  readonly connect?: BirdControlDependencies["connect"];
}

/** The settings of the data plane. */
export interface BirdOptions {
  readonly paths: BirdPaths;
  /** Time between two looks for a BIRD that was restarted or changed, milliseconds. @default {5000} */
  readonly pauseMs?: number;
  /** @default {that of BirdControl} */
  readonly timeoutMs?: number;
}

/** A session, with its description for users. */
export interface DescribedSession extends BgpSession {
  /** E.g. `trying (Active) since …: Socket: Connection refused; the peer runs no BGP daemon …`. */
  readonly description: string;
}

/** Longest wait of a report: status and metrics have more to say than what BIRD knows. */
const REPORT_MS = 2_000;

const DRIFT_TEXTS = {
  lost: "BIRD runs with another configuration; repairing",
  changed: "BIRD runs with another configuration; repairing",
  failed: "Cannot check the configuration of BIRD; trying again",
} as const;

/** Drives the BIRD of one node. The keys of its syncs are peers and prefixes. */
export class BirdDataPlane implements AsyncDisposable, DriftSubject {
  readonly pauseMs: number;
  readonly #clock: Clock;
  readonly #commands: CommandRunner;
  readonly #control: BirdControl;
  readonly #drift: DriftWatch;
  readonly #logger: Logger;
  readonly #paths: BirdPaths;
  readonly #turns = new OneAtATime();
  readonly #writer: BirdWriter;
  #plan: BgpPlan | undefined;
  #isKnown = false;
  #pendingSyncs = 0;
  /** Shared by all reports. */
  #reading: Promise<readonly BgpSession[]> | undefined;

  constructor(dependencies: BirdDependencies, { paths, pauseMs = 5_000, timeoutMs }: BirdOptions) {
    const { clock, commands, connect = connectUnix, logger, random } = dependencies;
    this.pauseMs = pauseMs;
    this.#clock = clock;
    this.#commands = commands;
    this.#logger = logger.with({ component: "bird" });
    this.#paths = paths;
    const socket = { socket: paths.socket, ...(timeoutMs !== undefined && { timeoutMs }) };
    this.#control = new BirdControl({ clock, connect }, socket);
    this.#writer = new BirdWriter({ clock, control: this.#control, random }, paths);
    const schedule = new VerificationSchedule(random, { shortestMs: 2 * pauseMs });
    const watched = { clock, logger, schedule, subject: this, turns: this.#turns };
    this.#drift = new DriftWatch(watched, DRIFT_TEXTS);
  }

  get isKnown(): boolean {
    return this.#isKnown;
  }

  get isPending(): boolean {
    return this.#pendingSyncs > 0 || !this.#isKnown;
  }

  /** Rejects if BIRD does not run or refuses the plan, and if its files belong to another program. */
  async sync(plan: BgpPlan): Promise<SyncReport<BgpItem>> {
    this.#pendingSyncs++;
    try {
      return await this.#turns.run(async () => {
        this.#plan = plan;
        this.#isKnown = false;
        this.#drift.start();
        const report = await this.#writer.apply(plan);
        this.#isKnown = true;
        // The configuration is one text, which is always compared as a whole.
        return { full: true, ...report };
      });
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full: true, cause });
    } finally {
      this.#pendingSyncs--;
    }
  }

  /** Removes everything that any run added, or only reports it. */
  async cleanup({ dryRun } = { dryRun: false }): Promise<CleanupReport> {
    if (!dryRun) await this.#drift.stop();
    const dependencies = { commands: this.#commands, writer: this.#writer };
    return await this.#turns.run(() => cleanUpBird(dependencies, { dryRun, paths: this.#paths }));
  }

  /** Sessions are BIRD's: they go on whether this process does or not. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#drift.stop();
  }

  /** The configuration for a plan, without passwords. The same plan gives the same bytes. Pure. */
  *render(plan: BgpPlan): Iterable<string> {
    yield birdConfig(plan, { secretsFile: this.#paths.secretsFile }).text;
  }

  /** How BIRD differs from a plan. Changes nothing. */
  compare(plan: BgpPlan): Promise<readonly BgpDifference[]> {
    return this.#turns.run(async () => {
      const state = await this.#writer.look(plan);
      const sent = await readSentPrefixes(this.#control, state.sessions);
      return compareBird(plan, { sent, state });
    });
  }

  /** The sessions of the peers of a plan. Rejects if BIRD does not run. */
  async sessions(plan: BgpPlan): Promise<readonly DescribedSession[]> {
    const sessions = await this.#readSessions();
    return plan.peers.flatMap((peer) => {
      const session = sessions.find((one) => one.peer === peer.name);
      return session ? [{ ...session, description: describeSession(session, peer) }] : [];
    });
  }

  async #readSessions(): Promise<readonly BgpSession[]> {
    const reading = this.#reading ??= this.#writer.sessions().finally(() => {
      this.#reading = undefined;
    });
    const late = Promise.withResolvers<never>();
    const timer = this.#clock.setTimer(REPORT_MS, () => {
      late.reject(new Error(`BIRD has not answered within ${REPORT_MS / 1000} s`));
    });
    try {
      return await Promise.race([reading, late.promise]);
    } finally {
      timer.cancel();
    }
  }

  /** The prefixes that peers are sent now. Rejects if BIRD does not run. */
  async sentPrefixes(): Promise<SentPrefixes> {
    return await readSentPrefixes(this.#control, await this.#writer.sessions());
  }

  /** For the watch. A BIRD that does not run reads the file when it starts. */
  async look(): Promise<LogFields | undefined> {
    const changed = await this.#turns.run(() => this.#writer.lookForChange());
    return this.isPending ? undefined : changed;
  }

  /** For the watch. */
  async verify(): Promise<DriftFound> {
    const plan = this.#plan;
    if (plan !== undefined) {
      // Of what `look()` does not notice, such as a changed password file.
      const { operations } = await this.#writer.apply(plan);
      if (Object.keys(operations).length > 0) this.#logger.info("Reconfigured BIRD", operations);
    }
    return { counts: {}, fields: {} };
  }
}
