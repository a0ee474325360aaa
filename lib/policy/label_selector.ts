/**
 * Selectors of pods and namespaces, parsed once.
 *
 * @module
 */
import { SetIndex } from "../net/set_index.ts";
import type { LabelSelectorSpec } from "../api/kinds/network_policy.ts";
import type { ProblemCollector } from "../api/problem.ts";

/** The labels of an object. */
export type Labels = Readonly<Record<string, string>>;

interface LabelRequirement {
  readonly key: string;
  readonly operator: "In" | "NotIn" | "Exists" | "DoesNotExist";
  /** Sorted; empty for Exists and DoesNotExist. */
  readonly values: ReadonlySet<string>;
}

/** A selector in canonical form. */
export interface LabelSelector {
  /** Selectors that select the same by the same requirements have the same text. */
  readonly text: string;
  /** All have to hold; without any, every object is selected. */
  readonly requirements: readonly LabelRequirement[];
  /** Parts could not be read. What selects peers then selects none. */
  readonly isInvalid: boolean;
}

/** Selects everything. */
export const EVERYTHING: LabelSelector = { text: "[]", requirements: [], isInvalid: false };

/**
 * Parses a selector. Values that only a newer API knows are reported and make it invalid; the
 * requirements that could be read stay.
 */
export function parseLabelSelector(
  { matchLabels = {}, matchExpressions = [], unknownFields }: LabelSelectorSpec,
  path: string,
  problems: ProblemCollector,
): LabelSelector {
  const found = new Map<string, LabelRequirement>();
  const add = (key: string, operator: LabelRequirement["operator"], values: readonly string[]) => {
    const sorted = [...new Set(values)].sort();
    found.set(JSON.stringify([key, operator, sorted]), { key, operator, values: new Set(sorted) });
  };
  let isInvalid = unknownFields !== undefined;
  if (isInvalid) problems.report(path, unknownFields, UNREAD);
  for (const [key, value] of Object.entries(matchLabels)) add(key, "In", [value]);
  for (const [index, { key, operator, values = [], ...rest }] of matchExpressions.entries()) {
    const needsValues = operator === "In" || operator === "NotIn";
    const isKnown = needsValues || operator === "Exists" || operator === "DoesNotExist";
    const isWhole = key !== undefined && rest.unknownFields === undefined;
    if (isKnown && isWhole && needsValues === values.length > 0) {
      add(key, operator, values);
      continue;
    }
    isInvalid = true;
    problems.report(`${path}.matchExpressions[${index}]`, { operator, ...rest }, UNREAD);
  }
  const sorted = [...found].sort(([left], [right]) => left < right ? -1 : 1);
  return {
    text: `[${sorted.map(([text]) => text).join(",")}]`,
    requirements: sorted.map(([, requirement]) => requirement),
    isInvalid,
  };
}

const UNREAD = "The selector is not understood: as a peer it selects nothing; as the selector of " +
  "a policy, the pods stay isolated and the policy allows nothing";

/**
 * Whether the requirements hold for an object. `isPartial` labels may lack some: then a requirement
 * that a label is absent or different does not hold, because it would allow more.
 */
export function matchesLabels(
  { requirements }: LabelSelector,
  labels: Labels,
  { isPartial = false }: { readonly isPartial?: boolean } = {},
): boolean {
  return requirements.every(({ key, operator, values }) => {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
    switch (operator) {
      case "In":
        return value !== undefined && values.has(value);
      case "Exists":
        return value !== undefined;
      case "NotIn":
        return value === undefined ? !isPartial : !values.has(value);
      case "DoesNotExist":
        return value === undefined && !isPartial;
    }
  });
}

/**
 * The place of a selector in the index. Selectors of different scopes never meet, such as those of
 * different namespaces.
 */
export interface SelectorPlace {
  readonly scope: string;
  readonly selector: LabelSelector;
}

/**
 * Finds the selectors that may match some labels without testing all of them: each one is filed under the
 * values of one of its requirements.
 */
export class SelectorIndex<Item> {
  readonly #items = new SetIndex<string, Item>();

  /** Files an item. */
  add(item: Item, at: SelectorPlace): void {
    this.#items.move(item, { from: [], to: placesOf(at) });
  }

  /** Takes back what {@linkcode add} did with the same arguments. */
  delete(item: Item, at: SelectorPlace): void {
    this.#items.move(item, { from: placesOf(at), to: [] });
  }

  /** Every item whose selector matches the labels, and a few more; each may come more than once. */
  *candidates(scope: string, labels: Labels): Generator<Item, void, void> {
    yield* this.#items.at(scope);
    for (const [key, value] of Object.entries(labels)) {
      yield* this.#items.at(`${scope}\n${key}`);
      yield* this.#items.at(`${scope}\n${key}=${value}`);
    }
  }
}

function placesOf({ scope, selector: { requirements } }: SelectorPlace): readonly string[] {
  let best: LabelRequirement | undefined;
  for (const requirement of requirements) {
    const { operator, values } = requirement;
    if (operator === "In" && (best?.operator !== "In" || values.size < best.values.size)) {
      best = requirement;
    } else if (operator === "Exists") best ??= requirement;
  }
  if (best === undefined) return [scope];
  const { key, operator, values } = best;
  if (operator === "Exists") return [`${scope}\n${key}`];
  return [...values].map((value) => `${scope}\n${key}=${value}`);
}
