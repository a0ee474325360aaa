/**
 * The syncs of one family's rules: whether each was full, and how many partial ones failed.
 *
 * @module
 */
import { messageOf } from "../../lib/log/message_of.ts";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { SyncFailure } from "../../lib/controller/sync_failure.ts";

/** What is known of the rules that the kernel holds. */
interface KnownRules {
  /** Whether what the kernel holds is known; else a write reads it, and compares all of it. */
  readonly isKnown: boolean;
  /** Writes that were refused, since the process began. */
  readonly failedWrites: number;
}

/** One sync. */
interface RuleSync {
  readonly plan: ProxyPlan;
  readonly changes: PlanChanges;
  /** Takes what has changed; nothing is written. */
  readonly take: () => Promise<void>;
  /** Writes what differs. */
  readonly write: () => Promise<void>;
}

/** Carries out syncs. One is in flight at most. */
export class RuleSyncs {
  #plan: ProxyPlan | undefined;
  #failedPartialWrites = 0;

  /** What was to be synced last, whether that went well or not. */
  get plan(): ProxyPlan | undefined {
    return this.#plan;
  }

  /** Writes that were refused in syncs that wrote only what had changed. */
  get failedPartialWrites(): number {
    return this.#failedPartialWrites;
  }

  /** What the report of a sync begins with. Throws a {@linkcode SyncFailure}. */
  async run(
    rules: KnownRules,
    { plan, changes, take, write }: RuleSync,
  ): Promise<Pick<SyncReport, "full" | "services">> {
    this.#plan = plan;
    let full = changes.everything || !rules.isKnown;
    const failedBefore = rules.failedWrites;
    try {
      await take();
      // With other options for all rules, nothing of what was written counts as known.
      full ||= !rules.isKnown;
      await write();
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full, cause });
    } finally {
      if (!full) this.#failedPartialWrites += rules.failedWrites - failedBefore;
    }
    return { full, services: changes.upserted.size + changes.removed.size };
  }
}
