import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { atOnce } from "../netfilter/in_steps.ts";
import type { NftChain } from "../netfilter/nft/nft_objects.ts";
import { ElementLines, NftTransaction } from "../netfilter/nft/nft_transaction.ts";
import type { TableElements, TableReading } from "../netfilter/nft/table_listing.ts";
import type { AppliedChanges, AppliedTable } from "./applied_table.ts";
import { chainElement, chainName, type ChainSpec } from "./chain_spec.ts";
import type { EntryId } from "./entry_id.ts";
import {
  CONTAINER_NAMES,
  type ContainerName,
  DYNAMIC_CONTAINER,
  type Element,
  type OwnedElement,
  servicesTable,
} from "./containers.ts";
import { chainOf, elementsOf, type Entry } from "./entry.ts";
import type { NftablesLayout } from "./layout.ts";

/** The transaction, and the content of the table after it. */
export interface TableDifference {
  readonly transaction: NftTransaction<ServicePortKey>;
  /** For {@linkcode AppliedTable.confirm}. */
  readonly applied: AppliedChanges;
}

/**
 * Returns the transaction that changes the kernel from `applied` to the desired state. Looks only
 * at the entries that the layout touched since it was last settled; at all of them after a read, or
 * if the state is unknown. After success, call `applied.confirm()` and `layout.settle()`. After a
 * failure the outcome is unknown: read the table.
 */
export function diffTable(layout: NftablesLayout, applied: AppliedTable): TableDifference {
  return atOnce(diffTableInSteps(layout, applied));
}

/**
 * Removes unused objects: first the numbers of unused chains, then chains without a number. This
 * takes two runs, since before kernel 6.2 an element deleted in the same transaction still holds
 * its chain.
 */
export function removeIdleChains(layout: NftablesLayout, applied: AppliedTable): TableDifference {
  const lasting = new Set(layout.baseChains().map(({ name }) => name));
  const idle = applied.idleChains().filter((name) => !lasting.has(name));
  const removedChains = [...applied.unnumberedChains];
  const elements = idle.map((name): OwnedElement => ({ element: chainElement(name) }));
  const transaction = atOnce(NftTransaction.steps(servicesTable(layout.options.family), {
    removed: new Map([["numbered-chains", elements]]),
    removedChains,
  }));
  return {
    transaction,
    applied: { chains: [], entries: [], unnumberedChains: idle, removedChains },
  };
}

/** As {@linkcode diffTable}, in short steps. The layout must not change in between. */
export function* diffTableInSteps(
  layout: NftablesLayout,
  applied: AppliedTable,
): Generator<void, TableDifference, void> {
  const { reading } = applied;
  const isReplaced = applied.isToBeReplaced;
  const present = isReplaced ? undefined : reading;
  if (present) yield* layout.adoptSlots(present.elements);
  const comparison = new Comparison(layout, applied, present?.elements);
  let compared = 0;
  for (const id of applied.isWritten ? layout.dirty : layout.ids()) {
    compared += 1 + comparison.compareEntry(id);
    if (compared < ELEMENTS_PER_STEP) continue;
    compared = 0;
    yield;
  }
  comparison.compareShared();
  comparison.removeRest();
  const base = layout.baseChains();
  const chains = [
    ...base.filter(({ name }) => !applied.chains.has(name)),
    ...comparison.chains.values(),
  ];
  const wanted = new Set([...base.map(({ name }) => name), ...comparison.wantedChains]);
  const transaction = yield* NftTransaction.steps(servicesTable(layout.options.family), {
    replacesTable: isReplaced,
    declared: applied.isWritten || isDeclared(present) ? undefined : CONTAINER_NAMES,
    chains,
    removed: comparison.removed,
    added: comparison.added,
  });
  return {
    transaction,
    applied: {
      chains: chains.map(({ name }) => name),
      printedLines: new Map(chains.map(linesOf)),
      unnumberedChains: [...present?.rules.keys() ?? []].filter((name) => !wanted.has(name)),
      entries: comparison.entries,
      removedEntries: comparison.removedEntries,
      shared: comparison.shared,
    },
  };
}

/** Far less than a millisecond; the time is read after each step. */
const ELEMENTS_PER_STEP = 64;

const NO_ELEMENTS: readonly Element[] = [];

/** Whether the table exists and is active, with every set and map. */
function isDeclared(reading: TableReading | undefined): boolean {
  return reading !== undefined && !reading.isDormant &&
    CONTAINER_NAMES.every((name) => reading.declarations.has(name));
}

/** The differences, while they are found. */
class Comparison {
  readonly removed = new Map<ContainerName, ElementLines<ServicePortKey>>();
  readonly added = new Map<ContainerName, ElementLines<ServicePortKey>>();
  readonly chains = new Map<string, NftChain>();
  /** Chains that entries lead to which were compared. */
  readonly wantedChains = new Set<string>();
  readonly entries: Entry[] = [];
  readonly removedEntries: EntryId[] = [];
  shared: readonly Element[] = [];
  readonly #layout: NftablesLayout;
  readonly #applied: AppliedTable;
  /** The elements that were read and not yet matched with desired ones. */
  readonly #rest: Map<string, Map<string, string>> | undefined;

  constructor(
    layout: NftablesLayout,
    applied: AppliedTable,
    elements: TableElements | undefined,
  ) {
    this.#layout = layout;
    this.#applied = applied;
    this.#rest = elements && copyOf(elements);
  }

  /** Returns the number of elements that it compared. */
  compareEntry(id: EntryId): number {
    const previous = this.#applied.entry(id);
    const wanted = previous
      ? this.#layout.entry(id, previous)
      : this.#layout.orderedEntry(id, this.#applied.order(id));
    if (wanted === previous) return 0;
    if (wanted) this.entries.push(wanted);
    else this.removedEntries.push(id);
    const before = previous ? elementsOf(previous) : NO_ELEMENTS;
    const after = wanted ? elementsOf(wanted) : NO_ELEMENTS;
    this.#compare(before, after, (wanted ?? previous)?.plan.key);
    const spec = wanted && chainOf(wanted);
    if (spec) this.#wantChain(spec, wanted.plan.key);
    return before.length + after.length;
  }

  /** Writes a chain with its number, before any element that leads to it. */
  #wantChain(spec: ChainSpec, owner: ServicePortKey): void {
    const name = chainName(spec);
    if (this.wantedChains.has(name)) return;
    this.wantedChains.add(name);
    const isThere = this.#applied.chains.has(name);
    if (!isThere) this.chains.set(name, { name, rules: this.#layout.chainRules(spec) });
    if (!isThere || !this.#applied.isWritten) this.#compare([], [chainElement(name)], owner);
  }

  compareShared(): void {
    this.shared = this.#layout.sharedElements();
    this.#compare(this.#applied.shared, this.shared, undefined);
  }

  /** Removes the remaining elements, which are not desired. */
  removeRest(): void {
    for (const container of CONTAINER_NAMES) {
      if (container === DYNAMIC_CONTAINER) continue;
      for (const key of this.#rest?.get(container)?.keys() ?? []) {
        this.#note(this.removed, { container, key }, undefined);
      }
    }
  }

  #compare(
    present: readonly Element[],
    wanted: readonly Element[],
    owner: ServicePortKey | undefined,
  ): void {
    // A first load consists of hundreds of thousands of new elements.
    if (present.length === 0 && this.#rest === undefined) {
      for (const element of wanted) this.#note(this.added, element, owner);
      return;
    }
    const left = new Map(present.map((element) => [idOf(element), element]));
    for (const element of wanted) {
      const old = left.get(idOf(element)) ?? this.#take(element);
      left.delete(idOf(element));
      if (old && (old.value ?? "") === (element.value ?? "")) continue;
      if (old) this.#note(this.removed, element, owner);
      this.#note(this.added, element, owner);
    }
    for (const element of left.values()) this.#note(this.removed, element, owner);
  }

  /** The element as it was read. */
  #take({ container, key }: Element): Element | undefined {
    const rest = this.#rest?.get(container);
    const value = rest?.get(key);
    rest?.delete(key);
    return value === undefined ? undefined : { container, key, value };
  }

  #note(
    changes: Comparison["added"],
    element: Element,
    owner: ServicePortKey | undefined,
  ): void {
    let lines = changes.get(element.container);
    if (lines === undefined) {
      lines = new ElementLines(changes === this.added ? "add" : "delete");
      changes.set(element.container, lines);
    }
    lines.add(element, owner);
  }
}

function copyOf(elements: TableElements): Map<string, Map<string, string>> {
  return new Map([...elements].map(([name, values]) => [name, new Map(values)]));
}

function idOf({ container, key }: Element): string {
  return `${container} ${key}`;
}

function linesOf({ name, hook, rules }: NftChain): readonly [string, number] {
  return [name, rules.length + (hook === undefined ? 0 : 1)];
}
