import type { LogFields } from "../../lib/log/logger.ts";
import type { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import {
  type DriftFigures,
  type DriftFound,
  type DriftSubject,
  DriftWatch,
} from "../netfilter/drift_watch.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import type { RuleBackendDependencies } from "../netfilter/rule_backend.ts";
import { VerificationSchedule } from "../netfilter/verification_schedule.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import { WriteFigures } from "./steps.ts";
import type { IpvsWriter } from "./target.ts";

interface ServerWatchDependencies extends Omit<RuleBackendDependencies, "commands"> {
  readonly runner: Pick<IpvsRunner, "deviceAddresses" | "servers">;
  readonly iptables: Pick<IptablesRunner, "hasRules">;
  readonly rules: {
    readonly isPending: boolean;
    verify(figures: WriteFigures): Promise<void>;
  };
  readonly writer: IpvsWriter;
  /** Serializes the watch with other writers. */
  readonly turns: OneAtATime;
}

/** While connections are waited for. */
const DRAIN_LOOK_MS = 5_000;
const LONGEST_PAUSE_MS = 30_000;
const SHORTEST_PAUSE_MS = 1_000;

/** What the metrics count objects as; entries of sets have the name of their set as kind. */
const KINDS: Readonly<Record<string, DriftFigures["kind"]>> = {
  ...{ chain: "rule", jump: "rule", rule: "rule" },
  ...{ server: "virtual_server", real: "virtual_server" },
  ...{ device: "address", address: "address" },
};

/** Makes the watch of one family. `periodMs`: longest time between two looks, under 30 s. */
export function createServerWatch(
  dependencies: ServerWatchDependencies,
  { periodMs }: { readonly periodMs: number },
): DriftWatch {
  const { clock, logger, onDrift, random, turns } = dependencies;
  // Sets and single rules are only seen by reading everything.
  const schedule = new VerificationSchedule(random);
  schedule.expect(clock.now(), 0);
  const subject = new ServersWithDevice(dependencies, periodMs);
  return new DriftWatch({ clock, logger, onDrift, schedule, subject, turns }, {
    lost: "Another program removed objects of kube-relay; repairing",
    changed: "Another program removed or changed objects of kube-relay; repairing",
    failed: "Cannot check the virtual servers; trying again",
  });
}

class ServersWithDevice implements DriftSubject {
  readonly #dependencies: ServerWatchDependencies;
  readonly #periodMs: number;

  constructor(dependencies: ServerWatchDependencies, periodMs: number) {
    this.#dependencies = dependencies;
    this.#periodMs = periodMs;
  }

  get isKnown(): boolean {
    return this.#dependencies.writer.isKnown;
  }

  get isPending(): boolean {
    const { rules, writer } = this.#dependencies;
    return rules.isPending || writer.target.isUnfinished;
  }

  get pauseMs(): number {
    const usual = Math.min(this.#periodMs, LONGEST_PAUSE_MS);
    const wanted = this.#dependencies.writer.target.drains.size > 0
      ? Math.min(usual, DRAIN_LOOK_MS)
      : usual;
    return Math.max(wanted, SHORTEST_PAUSE_MS);
  }

  look(): Promise<LogFields | undefined> {
    const { logger, runner, turns, writer: { engine, target } } = this.#dependencies;
    return turns.run(async () => {
      // A sync that failed comes again, and compares everything: its own changes are no drift.
      if (this.isPending) return undefined;
      const seen = await runner.servers(target.servers.keys());
      try {
        const drained = await target.removeDrained(seen);
        if (drained > 0) logger.verbose(2, "Removed drained real servers", { drained });
      } catch (error) {
        engine.forget();
        throw error;
      }
      const lost = await this.#lost(seen);
      return lost === undefined ? undefined : { lost };
    });
  }

  async verify(): Promise<DriftFound> {
    const { rules, writer } = this.#dependencies;
    const figures = new WriteFigures();
    await rules.verify(figures);
    const counts: Partial<Record<DriftFigures["kind"], number>> = {};
    for (const { kind } of writer.drift) {
      const counted = KINDS[kind] ?? "set";
      counts[counted] = (counts[counted] ?? 0) + 1;
    }
    const { reads: _, processes: __, ...fields } = figures.operations;
    return { counts, fields };
  }

  /** Describes what is missing; `undefined` = nothing. */
  async #lost(seen: readonly SeenServer[]): Promise<string | undefined> {
    const { iptables, runner, writer: { target } } = this.#dependencies;
    const there = new Set(seen.map(({ key }) => key));
    for (const key of target.servers.keys()) if (!there.has(key)) return `virtual server ${key}`;
    const addresses = await runner.deviceAddresses();
    if (addresses === undefined) return "the device";
    // The other IP family may have made it again, without the addresses of this one.
    for (const address of target.addresses) {
      if (!addresses.has(address)) return `address ${address}`;
    }
    return await iptables.hasRules("nat", "KUBE-SERVICES") ? undefined : "rules of table nat";
  }
}
