import type {
  ChangeListener,
  NamedChange,
  NamedItem,
  PolicyChange,
  ServiceChange,
} from "../../app/change_listener.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import { ChangeLog } from "./change_log.ts";
import { ChangeRecorder } from "./change_recorder.ts";
import type { CauseWords, EffectWords, RecordedChange } from "./pending_changes.ts";
import { NAMED_CAUSES, NAMED_EFFECTS, POLICY_CAUSES } from "./policy_words.ts";
import { SERVICE_CAUSES, SERVICE_EFFECTS } from "./service_words.ts";

/** The change log of a run, into which its loops write. */
export class RunChanges extends ChangeLog implements ChangeListener {
  followServices(loop: LoopId, waitMs: number): ChangeRecorder<ServiceChange, ServicePlan> {
    return this.#record(SERVICE_CAUSES, SERVICE_EFFECTS, { loop, waitMs });
  }

  followPolicies(loop: LoopId, waitMs: number): ChangeRecorder<PolicyChange, NamedItem> {
    return this.#record(POLICY_CAUSES, NAMED_EFFECTS, { loop, waitMs });
  }

  follow(loop: LoopId, waitMs: number): ChangeRecorder<NamedChange, NamedItem> {
    return this.#record(NAMED_CAUSES, NAMED_EFFECTS, { loop, waitMs });
  }

  #record<Change extends RecordedChange, Item>(
    causeWords: CauseWords<Change>,
    effectWords: EffectWords<Item>,
    options: { readonly loop: LoopId; readonly waitMs: number },
  ): ChangeRecorder<Change, Item> {
    const edges = { clock: this.clock, log: this };
    return new ChangeRecorder(edges, { causeWords, effectWords, ...options });
  }
}
