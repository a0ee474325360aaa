/** Describes the causes and effects of syncs of routing, for the change log. Pure. */
import { type KubeObject, objectKey } from "../../api/kind.ts";
import type { ChangeRecorder } from "../changes/change_recorder.ts";
import type { CauseWords, EffectWords } from "../changes/pending_changes.ts";

/** The possible causes of a sync. */
export interface RoutingChange {
  readonly kind: "Service" | "Node" | "Lease" | "addresses" | "configuration";
  /** Of a kind without an object, or of a Lease that expired. @default {that of the object} */
  readonly name?: string;
  readonly previous: KubeObject | undefined;
  readonly current: KubeObject | undefined;
  /** What happened. */
  readonly words: readonly string[];
}

/** An address or prefix that a sync changed. */
export interface RoutingEffect {
  readonly name: string;
  readonly words: readonly string[];
}

/** Writes down the changes of one loop. */
export type RoutingRecorder = ChangeRecorder<RoutingChange, RoutingEffect>;

/** Any Node may affect any address. */
const ANYTHING = "anything";

/** The words. */
export const ROUTING_WORDS = {
  causeWords: {
    subjectOf({ name, current, previous }) {
      const object = current ?? previous;
      return { name: name ?? (object ? objectKey(object) : ""), owner: ANYTHING };
    },
    wordsOf: ({ words }) => words,
  } satisfies CauseWords<RoutingChange>,
  effectWords: {
    keyOf: ({ name }) => name,
    ownerOf: () => ANYTHING,
    wordsOf: (previous, next) => (next ?? previous)?.words ?? [],
  } satisfies EffectWords<RoutingEffect>,
};
