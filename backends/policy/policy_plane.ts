import type { SyncReport } from "../../lib/engine/data_plane.ts";
import { type Change, Reconciler } from "../../lib/engine/reconciler.ts";
import { SyncFailure } from "../../lib/engine/sync_event.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type {
  DeniedPackets,
  Direction,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
} from "../../lib/policy/policy_plan.ts";
import type { DataPlaneDifference } from "../../lib/proxy/data_plane.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import {
  type FoundMachine,
  RulePlane,
  type RulePlaneEdges,
  type RuleWatch,
} from "../netfilter/rule_plane.ts";
import { DIRECTIONS, type Part, type PolicyTarget } from "./policy_target.ts";

/** The log messages about drift, the same for every tool. */
const DRIFT_TEXTS = {
  lost: "Another program removed rules of NetworkPolicy; repairing",
  changed: "Another program removed or changed rules of NetworkPolicy; repairing",
  failed: "Cannot check the rules of NetworkPolicy; trying again",
} as const;

/** The settings of a data plane. */
export interface PolicyPlaneOptions {
  readonly family: IpFamily;
  /** Longest time between two looks for what a flush takes along, milliseconds. */
  readonly syncPeriodMs: number;
}

/** Enforces NetworkPolicy in one IP family, by rules that the kernel applies. */
export abstract class PolicyPlane<Each extends PolicyTarget = PolicyTarget>
  extends RulePlane<Each, Part> {
  abstract readonly tool: "nftables" | "iptables";
  /** The location of the rules, as text for users. */
  abstract readonly summary: string;
  /** Rules and sets that the tool refused. */
  protected readonly refused = new RefusedItems<{ readonly key: Part }>();
  protected readonly periodMs: number;
  #plan: PolicyPlan | undefined;
  #hasFailed = false;

  constructor(edges: RulePlaneEdges, options: PolicyPlaneOptions) {
    super(edges, options);
    this.periodMs = options.syncPeriodMs;
  }

  /** Makes a target, for the rules or for a comparison. Needs no start. */
  protected abstract createTarget(): Each | Promise<Each>;
  /** How the rules are watched, besides what every tool has in common. */
  protected abstract watch(target: Each, common: Pick<RuleWatch, "found" | "texts">): RuleWatch;
  /** Reads the packets that were denied in a direction; `undefined` = they cannot be read. */
  protected abstract deniedIn(direction: Direction): Promise<number | undefined>;
  /** The plan in the tool's own language, in pieces. The same plan gives the same bytes. Pure. */
  abstract render(plan: PolicyPlan): Iterable<string>;

  protected override async prepare(): Promise<FoundMachine<Each>> {
    const target = await this.createTarget();
    const found: RuleWatch["found"] = (changes) => {
      const differences = target.differences(changes);
      const counts = { chain: 0, rule: 0, set: 0 };
      for (const { object } of differences) counts[kindOf(object)]++;
      const [first] = differences;
      return { counts, fields: { ...counts, ...(first && { first: first.name }) } };
    };
    return { target, watch: this.watch(target, { texts: DRIFT_TEXTS, found }) };
  }

  protected get hasUnwrittenPlan(): boolean {
    return this.#plan === undefined || this.#plan.isStale === true || this.#hasFailed;
  }

  sync(plan: PolicyPlan, changes: PolicyPlanChanges): Promise<SyncReport<PolicyKey>> {
    return this.turns.run(async () => {
      const { engine, target } = this;
      if (engine === undefined || target === undefined) {
        throw new Error(`Cannot sync NetworkPolicy by ${this.tool}: start() has not succeeded`);
      }
      if (changes.full) engine.forget();
      this.#plan = plan;
      this.#hasFailed = true;
      target.countAnew();
      target.want(plan, changes);
      try {
        await engine.sync();
      } catch (cause) {
        throw new SyncFailure(messageOf(cause), { full: engine.isFull, cause });
      }
      this.#hasFailed = false;
      this.expectComparison(0);
      const { operations, quarantined } = target;
      return { full: engine.isFull, operations, quarantined };
    });
  }

  /** Returns the differences between the machine and a plan, except for refused parts. */
  compare(plan: PolicyPlan): Promise<readonly DataPlaneDifference[]> {
    return this.turns.run(async () => {
      const target = await this.createTarget();
      target.want(plan);
      return target.differences(await new Reconciler(this.edges, target).compare());
    });
  }

  async deniedPackets(): Promise<DeniedPackets> {
    const counts: { -readonly [Each in Direction]?: number } = {};
    for (const direction of DIRECTIONS) {
      const packets = await this.deniedIn(direction);
      if (packets !== undefined) counts[direction] = packets;
    }
    return counts;
  }

  protected override async verify(): Promise<readonly Change<Part>[]> {
    const plan = this.#plan!;
    this.target?.want(plan);
    const changes = await super.verify();
    if (plan.isStale !== true) return changes;
    // The plan has changed meanwhile, and the next sync knows only the changed keys.
    this.engine?.forget();
    return [];
  }
}

/** The kinds of objects of the metric of drift. */
function kindOf(object: string): "chain" | "rule" | "set" {
  if (object === "chain" || object === "table") return "chain";
  return object === "rule" ? "rule" : "set";
}
