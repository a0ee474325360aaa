import type { ObjectProblem } from "../../api/problem.ts";
import type { SyncReport } from "../../engine/data_plane.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import type { LoopTexts } from "../../engine/sync_event.ts";
import { retryBackoff, SyncLoop } from "../../engine/sync_loop.ts";
import { messageOf } from "../../log/message_of.ts";
import type { LoopListener, NamedItem, ObjectChange } from "../change_listener.ts";
import type { ControllerParts } from "../controllers.ts";

interface PartLoopOptions<Key extends string> {
  readonly id: LoopId;
  readonly texts: LoopTexts;
  /** Shortest and longest time between two syncs. */
  readonly periodMs: readonly [min: number, max: number];
  /** Brings the plan up to date, and records its effects. */
  readonly collect: () => Promise<readonly ObjectProblem[]>;
  /** Carries the plan out. */
  readonly sync: () => Promise<SyncReport<Key>>;
}

/** The loop of a part of routing, whose backend compares the whole plan. */
export class PartLoop<Key extends string> {
  readonly loop: SyncLoop<undefined, object, Key, SyncReport<Key>>;
  readonly #recorder: LoopListener<NamedItem>;
  readonly #source: { pending: boolean };

  constructor(
    parts: Pick<ControllerParts, "changes" | "clock" | "listeners" | "logger" | "random">,
    { id, texts, periodMs: [minPeriodMs, maxPeriodMs], collect, sync }: PartLoopOptions<Key>,
  ) {
    const recorder = this.#recorder = parts.changes.follow(id, minPeriodMs);
    const source = {
      plan: undefined,
      pending: true,
      async collectChanges() {
        source.pending = false;
        recorder.drained();
        return { changes: {}, problems: await collect() };
      },
      failed() {
        source.pending = true;
      },
    };
    this.#source = source;
    this.loop = new SyncLoop(parts, {
      ...{ id, texts, source, listeners: [recorder] },
      dataPlane: { start: () => Promise.resolve(), sync },
      periods: { minPeriodMs, maxPeriodMs, retryMs: retryBackoff(parts.random) },
    });
  }

  /** Notes a cause, for the change log. */
  seen(cause: ObjectChange): void {
    this.#recorder.seen(cause);
  }

  /** Requests a sync. */
  request(cause?: ObjectChange): void {
    if (cause) this.seen(cause);
    this.#source.pending = true;
    this.loop.request();
  }

  /** Records an effect of the plan. */
  planned(previous: NamedItem | undefined, next: NamedItem | undefined): void {
    this.#recorder.planned(previous, next);
  }
}

/**
 * Has a plan carried out, if there is one. What cannot be applied is in quarantine under `key`: it is no
 * failure of kube-relay, whose Services work.
 */
export async function syncPart<Plan>(
  backend: { sync(plan: Plan): Promise<SyncReport<string>> },
  plan: Plan | undefined,
  key: string,
  missingNode: string | undefined,
): Promise<SyncReport<string>> {
  if (plan === undefined) {
    const reason = `Node ${missingNode} is not known yet: its addresses are needed`;
    const quarantined = missingNode === undefined ? [] : [{ key, reason }];
    return { full: false, operations: {}, quarantined };
  }
  try {
    return await backend.sync(plan);
  } catch (error) {
    return { full: true, operations: {}, quarantined: [{ key, reason: messageOf(error) }] };
  }
}
