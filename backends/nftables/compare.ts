/**
 * Compares the table that was found with the desired one, object by object, and computes the
 * repair. Pure.
 *
 * Unused chains and their numbers are no difference: packets never reach them, and the process
 * that created them removes them.
 *
 * @module
 */
import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { compareLists } from "../../lib/proxy/compare_lists.ts";
import type { NftChain, NftContainer, NftTableSpec } from "../netfilter/nft/nft_objects.ts";
import type { CodedTable } from "../netfilter/nft/nft_runner.ts";
import { NftTransaction } from "../netfilter/nft/nft_transaction.ts";
import { isDeclaredAs, normalHook, readChainPrint } from "../netfilter/nft/printed_form.ts";
import type { RuleCode } from "../netfilter/nft/rule_code.ts";
import { LAYOUT_MARK } from "./base_chains.ts";
import { chainElement, isChoosingChain } from "./chain_spec.ts";
import { compareElements } from "./compare_elements.ts";
import {
  CONTAINER_NAMES,
  type ContainerName,
  DYNAMIC_CONTAINER,
  isContainerName,
  type OwnedElement,
  servicesTable,
} from "./containers.ts";
import type { NftablesRenderOptions } from "./render_options.ts";
import type { WantedState } from "./wanted_state.ts";

interface TableComparisonInput {
  readonly options: NftablesRenderOptions;
  readonly wanted: WantedState;
  /** The meaning of the rules of the desired chains. */
  readonly code: RuleCode;
  /** The table that was read; `undefined` = it does not exist. */
  readonly found: CodedTable | undefined;
  /** Only these ServicePorts, and the shared rules. @default {all} */
  readonly keys?: ReadonlySet<ServicePortKey> | undefined;
}

/** The differences and their repair. */
export interface TableComparison {
  readonly differences: readonly DataPlaneDifference[];
  /** Empty if nothing differs, or if the remaining differences need {@linkcode removal}. */
  readonly changes: NftTransaction;
  /** Objects without an owner. Removed last, since other objects may refer to them until then. */
  readonly removal: NftTransaction;
}

/** Compares a table with the desired one, in short steps. */
export function* compareTable(
  input: TableComparisonInput,
): Generator<void, TableComparison> {
  const { found } = input;
  const comparison = new PendingTableChanges(input);
  const isReplaced = comparison.compareTableItself();
  if (found && !isReplaced) {
    comparison.compareContainers(found);
    comparison.compareChains(found);
  }
  yield* comparison.compareElements(isReplaced ? undefined : found);
  return yield* comparison.end();
}

class PendingTableChanges {
  readonly #input: TableComparisonInput;
  readonly #table: NftTableSpec<ContainerName>;
  readonly #differences: DataPlaneDifference[] = [];
  readonly #chains: NftChain[] = [];
  readonly #recreated: string[] = [];
  readonly #strangeChains: string[] = [];
  readonly #strangeContainers: (Pick<NftContainer, "kind"> & { readonly name: string })[] = [];
  #removed: ReadonlyMap<ContainerName, readonly OwnedElement[]> = new Map();
  #added: ReadonlyMap<ContainerName, readonly OwnedElement[]> = new Map();
  #replacesTable = false;
  #declares = false;
  /** Sets and maps that are missing: their elements are not listed one by one. */
  readonly #missing = new Set<ContainerName>();

  constructor(input: TableComparisonInput) {
    this.#input = input;
    this.#table = servicesTable(input.options.family);
  }

  /** Whether the whole table is rewritten; then its content is not listed. */
  compareTableItself(): boolean {
    const { found, wanted } = this.#input;
    const name = `${this.#table.family} ${this.#table.name}`;
    const other = found?.rules.keys().find((chain) =>
      /^layout-/.test(chain) && chain !== LAYOUT_MARK
    );
    const isOther = found !== undefined && !found.rules.has(LAYOUT_MARK) && other !== undefined;
    const isReplaced = found === undefined || isOther;
    if (found === undefined) {
      this.#differences.push({ object: "table", name, kind: "missing", wanted: LAYOUT_MARK });
    } else if (isOther) {
      const words = { wanted: LAYOUT_MARK, found: other };
      this.#differences.push({ object: "table", name, kind: "altered", ...words });
    } else if (found.isDormant) {
      const words = { wanted: "no flags", found: "flags dormant" };
      this.#differences.push({ object: "table", name, kind: "altered", ...words });
    }
    const altered = isReplaced ? [] : alteredContainers(found.declarations, this.#table);
    this.#differences.push(...altered);
    // No set can be declared again while a rule looks things up in it.
    this.#replacesTable = isOther || altered.length > 0;
    const isNew = isReplaced || this.#replacesTable;
    this.#declares = isNew || found.isDormant;
    if (isNew) { for (const chain of wanted.chains.values()) this.#chains.push(chain); }
    return isNew;
  }

  compareContainers({ declarations }: CodedTable): void {
    for (const [name, { kind, declaration }] of this.#table.containers) {
      if (declarations.has(name)) continue;
      this.#missing.add(name);
      this.#declares = true;
      this.#differences.push({ object: kind, name, kind: "missing", wanted: declaration });
    }
    for (const [name, print] of declarations) {
      if (isContainerName(name)) continue;
      const kind = print.startsWith("map\n") ? "map" : "set";
      this.#strangeContainers.push({ kind, name });
      this.#differences.push({ object: kind, name, kind: "extra", found: `${kind} ${name}` });
    }
  }

  compareChains(found: CodedTable): void {
    const { wanted } = this.#input;
    for (const chain of wanted.chains.values()) {
      if (!found.rules.has(chain.name)) {
        this.#chains.push(chain);
        this.#differences.push({
          object: "chain",
          name: chain.name,
          kind: "missing",
          wanted: chainText(chain.hook, chain.rules),
        });
      } else this.#compareChain(chain, found);
    }
    for (const [name, print] of found.rules) {
      if (wanted.chains.has(name) || isChoosingChain(name)) continue;
      this.#strangeChains.push(name);
      const { hook, rules } = readChainPrint(print);
      const text = chainText(hook, rules);
      this.#differences.push({ object: "chain", name, kind: "extra", found: text });
    }
  }

  #compareChain(chain: NftChain, found: CodedTable): void {
    const { name } = chain;
    const { hook, rules } = readChainPrint(found.rules.get(name) ?? "");
    const wantedHook = chain.hook === undefined ? undefined : normalHook(chain.hook);
    if (hook !== wantedHook) {
      this.#recreated.push(name);
      const words = { wanted: wantedHook ?? "no hook", found: hook ?? "no hook" };
      this.#differences.push({ object: "chain", name, kind: "altered", ...words });
    }
    const code = this.#input.code.get(name) ?? [];
    const differences = compareLists(code, found.code.get(name) ?? []);
    if (differences.length > 0 || hook !== wantedHook) this.#chains.push(chain);
    for (const { kind, ...place } of differences) {
      const number = (place.wanted ?? place.found ?? 0) + 1;
      const wanted = place.wanted === undefined ? undefined : chain.rules[place.wanted];
      const there = place.found === undefined ? undefined : rules[place.found];
      this.#differences.push({
        object: "rule",
        name: `${name}, rule ${number}`,
        kind,
        ...(wanted !== undefined && { wanted }),
        ...(there !== undefined && { found: there }),
      });
    }
  }

  *compareElements(found: CodedTable | undefined): Generator<void, void> {
    const { keys, wanted } = this.#input;
    const idle = [...found?.rules.keys() ?? []].filter((name) =>
      isChoosingChain(name) && !wanted.chains.has(name)
    );
    const changes = yield* compareElements({
      containers: this.#table.containers,
      wanted,
      found: found?.elements ?? new Map(),
      unknown: new Set(idle.map((name) => chainElement(name).key)),
      keys,
    });
    this.#removed = changes.removed;
    this.#added = changes.added;
    if (found === undefined) return;
    for (const { container, difference } of changes.differences) {
      if (!this.#missing.has(container)) this.#differences.push(difference);
    }
  }

  *end(): Generator<void, TableComparison> {
    const changes = yield* NftTransaction.steps(this.#table, {
      replacesTable: this.#replacesTable,
      declared: this.#declares ? CONTAINER_NAMES : undefined,
      recreated: this.#recreated,
      chains: this.#chains,
      removed: this.#removed,
      added: this.#added,
    });
    const removal = yield* NftTransaction.steps(this.#table, {
      removedChains: this.#strangeChains,
      removedContainers: this.#strangeContainers,
    });
    return { differences: this.#differences, changes, removal };
  }
}

/** Returns the sets and maps whose types or flags differ. */
function alteredContainers(
  declarations: CodedTable["declarations"],
  { containers }: NftTableSpec,
): readonly DataPlaneDifference[] {
  return [...containers].flatMap(([name, container]) => {
    const found = declarations.get(name);
    if (found === undefined || name === DYNAMIC_CONTAINER) return [];
    if (isDeclaredAs(container, found)) return [];
    const { kind, declaration: wanted } = container;
    const words = { wanted, found: found.trim().split("\n").slice(1).join(" ; ") };
    return [{ object: kind, name, kind: "altered" as const, ...words }];
  });
}

function chainText(hook: string | undefined, rules: readonly string[]): string {
  return [...(hook === undefined ? [] : [hook]), ...rules].join("\n") || "no rules";
}
