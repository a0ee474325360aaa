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
import type { IpvsWriter } from "./ipvs_writer.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import { type IpvsStep, WriteFigures } from "./steps.ts";

interface ServerWatchDependencies extends Omit<RuleBackendDependencies, "commands"> {
  readonly runner: Pick<IpvsRunner, "deviceAddresses" | "servers">;
  readonly iptables: Pick<IptablesRunner, "hasRules">;
  readonly writer: IpvsWriter;
  /** Serializes the watch with other writers. */
  readonly turns: OneAtATime;
}

/** While connections are waited for. */
const DRAIN_LOOK_MS = 5_000;
const LONGEST_PAUSE_MS = 30_000;
const SHORTEST_PAUSE_MS = 1_000;

/** The kind of objects that each tool writes. */
const KINDS: Readonly<Record<IpvsStep["tool"], DriftFigures["kind"]>> = {
  ipset: "set",
  iptables: "rule",
  ipvsadm: "virtual_server",
  ip: "address",
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
    return this.#dependencies.writer.isPending;
  }

  get pauseMs(): number {
    const usual = Math.min(this.#periodMs, LONGEST_PAUSE_MS);
    const wanted = this.#dependencies.writer.draining > 0 ? Math.min(usual, DRAIN_LOOK_MS) : usual;
    return Math.max(wanted, SHORTEST_PAUSE_MS);
  }

  look(): Promise<LogFields | undefined> {
    const { logger, runner, turns, writer } = this.#dependencies;
    return turns.run(async () => {
      // A sync that failed comes again, and compares everything: its own changes are no drift.
      if (writer.isPending) return undefined;
      const seen = await runner.servers(writer.servers);
      const drained = await writer.drain(seen, new WriteFigures());
      if (drained > 0) logger.verbose(2, "Removed drained real servers", { drained });
      const lost = await this.#lost(seen);
      return lost === undefined ? undefined : { lost };
    });
  }

  async verify(): Promise<DriftFound> {
    const { writer } = this.#dependencies;
    const figures = new WriteFigures();
    writer.forget();
    await writer.write(figures, { isWhole: true });
    const { reads: _, processes: __, ...fields } = figures.operations;
    const counts: Partial<Record<DriftFigures["kind"], number>> = {};
    for (const [tool, kind] of Object.entries(KINDS)) counts[kind] = fields[tool] ?? 0;
    return { counts, fields };
  }

  /** Describes what is missing; `undefined` = nothing. */
  async #lost(seen: readonly SeenServer[]): Promise<string | undefined> {
    const { iptables, runner, writer } = this.#dependencies;
    const there = new Set(seen.map(({ key }) => key));
    for (const key of writer.servers) if (!there.has(key)) return `virtual server ${key}`;
    const addresses = await runner.deviceAddresses();
    if (addresses === undefined) return "the device";
    // The other IP family may have made it again, without the addresses of this one.
    for (const address of writer.addresses) {
      if (!addresses.has(address)) return `address ${address}`;
    }
    return await iptables.hasRules("nat", "KUBE-SERVICES") ? undefined : "rules of table nat";
  }
}
