/**
 * BGP by a BIRD of its own. BIRD is a service besides kube-relay: sessions and routes stay while
 * kube-relay restarts, and BIRD restarts gracefully by itself.
 *
 * @module
 */
import type { CleanupReport, DataPlaneEdges, SyncReport } from "../../../lib/engine/data_plane.ts";
import { SyncFailure } from "../../../lib/engine/sync_failure.ts";
import type { LogFields, Logger } from "../../../lib/log/logger.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { connectUnix } from "../../../lib/os/network.ts";
import { removeFile } from "../../../lib/os/write_file.ts";
import type { BgpPlan } from "../../../lib/routing/bgp_plan.ts";
import type { RoutingDifference } from "../../../lib/routing/compare_layer2.ts";
import { type DriftFound, type DriftSubject, DriftWatch } from "../../netfilter/drift_watch.ts";
import { RemovalRun } from "../../netfilter/foreign/removal_run.ts";
import { VerificationSchedule } from "../../netfilter/verification_schedule.ts";
import { type BgpItem, birdConfig } from "./bird_config.ts";
import { BirdControl, type BirdControlDependencies } from "./bird_control.ts";
import { readOwnFile } from "../own_file.ts";
import { BIRD_FILE } from "./bird_files.ts";
import { type BgpSession, describeSession } from "./bird_status.ts";
import { type BirdPaths, BirdTarget, candidateOf, ForeignBirdError } from "./target.ts";

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
  readonly #drift: DriftWatch;
  readonly #logger: Logger;
  readonly #paths: BirdPaths;
  readonly #target: BirdTarget;
  readonly #turns = new OneAtATime();
  #plan: BgpPlan | undefined;
  #isKnown = false;
  #pendingSyncs = 0;
  /** Shared by all reports. */
  #reading: Promise<readonly BgpSession[]> | undefined;

  constructor(
    dependencies: DataPlaneEdges & {
      /** @default {the machine's Unix sockets} */
      readonly connect?: BirdControlDependencies["connect"];
    },
    { paths, pauseMs = 5_000 }: {
      readonly paths: BirdPaths;
      /** Time between two looks for a BIRD that was restarted or changed. @default {5000} */
      readonly pauseMs?: number;
    },
  ) {
    const { clock, commands, connect = connectUnix, logger, random } = dependencies;
    this.pauseMs = pauseMs;
    this.#clock = clock;
    this.#commands = commands;
    this.#logger = logger.with({ component: "bird" });
    this.#paths = paths;
    const control = new BirdControl({ clock, connect }, { socket: paths.socket });
    this.#target = new BirdTarget({ clock, random }, control, paths);
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
        const report = await this.#target.apply(plan);
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

  /** The configuration for a plan, without passwords. The same plan gives the same bytes. Pure. */
  *render(plan: BgpPlan): Iterable<string> {
    yield birdConfig(plan, { secretsFile: this.#paths.secretsFile }).text;
  }

  /** How BIRD differs from a plan. Changes nothing. */
  compare(plan: BgpPlan): Promise<readonly RoutingDifference[]> {
    return this.#turns.run(() => this.#target.compare(plan));
  }

  /** The sessions of the peers of a plan. Rejects if BIRD does not run. */
  async sessions(plan: BgpPlan): Promise<readonly DescribedSession[]> {
    const reading = this.#reading ??= this.#target.sessions().finally(() => {
      this.#reading = undefined;
    });
    const late = Promise.withResolvers<never>();
    const timer = this.#clock.setTimer(REPORT_MS, () => {
      late.reject(new Error(`BIRD has not answered within ${REPORT_MS / 1000} s`));
    });
    const sessions = await Promise.race([reading, late.promise]).finally(() => timer.cancel());
    return plan.peers.flatMap((peer) => {
      const session = sessions.find((one) => one.peer === peer.name);
      return session ? [{ ...session, description: describeSession(session, peer) }] : [];
    });
  }

  /** The prefixes that peers are sent now. Rejects if BIRD does not run. */
  async sentPrefixes(): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
    return await this.#target.sentPrefixes(await this.#target.sessions());
  }

  /** For the watch. A BIRD that does not run reads the file when it starts. */
  async look(): Promise<LogFields | undefined> {
    const changed = await this.#turns.run(() => this.#target.lookForChange());
    return this.isPending ? undefined : changed;
  }

  /** For the watch. */
  async verify(): Promise<DriftFound> {
    const plan = this.#plan;
    if (plan !== undefined) {
      // Of what `look()` does not notice, such as a changed password file.
      const { operations } = await this.#target.apply(plan);
      if (Object.keys(operations).length > 0) this.#logger.info("Reconfigured BIRD", operations);
    }
    return { counts: {}, fields: {} };
  }

  /** Removes everything that any run added, or only reports it. */
  async cleanup({ dryRun } = { dryRun: false }): Promise<CleanupReport> {
    if (!dryRun) await this.#drift.stop();
    return await this.#turns.run(async () => {
      const run = new RemovalRun({ commands: this.#commands }, { dryRun });
      await this.#cleanUp(run).catch((error) => run.fail(messageOf(error)));
      return run.report();
    });
  }

  /** Sessions are BIRD's: they go on whether this process does or not. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#drift.stop();
  }

  /** Works without a plan, from the files of an earlier run. */
  async #cleanUp(run: RemovalRun): Promise<void> {
    const { file, secretsFile, socket } = this.#paths;
    const text = await readOwnFile(file, BIRD_FILE);
    if (text === undefined) return;
    const value = (pattern: RegExp) => pattern.exec(text)?.[1] ?? "";
    const table = Number(value(/^ {2}kernel table (\d+);$/m));
    const metric = Number(value(/^ {2}metric (\d+);$/m));
    if (!run.dryRun) {
      const none = { mesh: [], external: [], refused: [], defaultRoute: false, limitPerPeer: 1 };
      const routerId = parseIpAddress(value(/^router id (\S+);$/m));
      const imports = { ...none, table, metric };
      // BIRD would write its routes again, and would go on announcing.
      await this.#target.empty({ routerId, localAs: 1, peers: [], announced: [], imports })
        .catch((error) => {
          if (!(error instanceof ForeignBirdError)) throw error;
          run.keep(`the BIRD on ${socket}: kube-relay did not write its configuration`);
        });
    }
    // BIRD marks its routes, and ours have a metric of their own. A running BIRD has removed them.
    const ours = ["table", `${table}`, "proto", "bird", "metric", `${metric}`];
    for (const flag of ["-4", "-6"]) {
      const { stdout } = await this.#commands.run("ip", [flag, "route", "show", ...ours]);
      const routes = stdout.split("\n").filter((line) => line.trim() !== "");
      if (routes.length === 0) continue;
      const removes = routes.map((line) => `route ${line.trim().split(/\s+/)[0]} of BIRD`);
      await run.do("routes of BIRD", { command: ["ip", flag, "route", "flush", ...ours], removes });
    }
    if (!run.dryRun) await removeFile(candidateOf(this.#paths));
    for (const path of [file, secretsFile]) await run.removeFile(path);
  }
}
