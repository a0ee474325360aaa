/** Describes the causes and effects of syncs of routing, for the change log. Pure. */
import type { ChangeRecorder } from "../../tools/changes/change_recorder.ts";
import type { CauseWords, EffectWords } from "../../tools/changes/pending_changes.ts";

/** The possible causes of a sync. */
export interface RoutingChange {
  readonly kind: "Service" | "Node" | "Lease" | "addresses" | "configuration";
  readonly name: string;
  /** What happened; may be empty. */
  readonly words: readonly string[];
}

/** An address or prefix that a sync changed. */
export interface RoutingEffect {
  readonly name: string;
  readonly words: readonly string[];
}

/** A cause as recorders take it: only its words are kept of the objects. */
type RecordedCause = RoutingChange & { readonly previous: undefined; readonly current: undefined };

/** Writes down the changes of one loop. */
export type RoutingRecorder = ChangeRecorder<RecordedCause, RoutingEffect>;

/** Notes a cause. */
export function noteCause(recorder: RoutingRecorder, change: RoutingChange): void {
  recorder.seen({ ...change, previous: undefined, current: undefined });
}

/** Any Node may affect any address. */
const ANYTHING = "anything";

/** The words. */
export const ROUTING_WORDS = {
  causeWords: {
    subjectOf: ({ name }) => ({ name, owner: ANYTHING }),
    wordsOf: ({ words }) => words,
  } satisfies CauseWords<RecordedCause>,
  effectWords: {
    keyOf: ({ name }) => name,
    ownerOf: () => ANYTHING,
    wordsOf: (previous, next) => (next ?? previous)?.words ?? [],
  } satisfies EffectWords<RoutingEffect>,
};
