/**
 * One table of nftables for the engine: its objects as they are found, and changes as one
 * transaction. The table of Services and that of policies add what they want in it.
 *
 * Objects are of kind `table`, `set`, `map` or `chain`; those of any other kind are the elements of
 * the set or map of this name. The text of a chain is its hook and its rules, as they were written:
 * nft prints rules in other words, but their instructions for the kernel are the same.
 *
 * @module
 */
import {
  type Batch,
  type Change,
  type KernelObject,
  type ObjectName,
  type Objects,
  Refusal,
  Unreadable,
} from "../../../lib/engine/reconciler.ts";
import type { RuleWatch } from "../rule_plane.ts";
import { compareLists } from "../../../lib/proxy/compare_lists.ts";
import type { DataPlaneDifference } from "../../../lib/proxy/data_plane.ts";
import type { NftChain, NftContainer, NftTableSpec } from "./nft_objects.ts";
import { type CodedTable, NftError, type NftRunner } from "./nft_runner.ts";
import {
  chainText,
  NftDraft,
  type NftTransaction,
  type OwnerOfLine,
  readChainText,
} from "./nft_transaction.ts";
import { isDeclaredAs, normalHook, readChainPrint, withProtocolNames } from "./table_listing.ts";

/** Counts of one sync, or of one repair. */
export class NftFigures {
  /** Listings of the whole table. */
  reads = 0;
  /** Runs of `nft -f`, refused ones too. */
  transactions = 0;
  /** Lines of accepted input. */
  lines = 0;
  bytes = 0;
  /** Elements added or deleted. */
  elements = 0;
  /** Chains that were created or rewritten. */
  chains = 0;
  removedChains = 0;

  /** For the report of a sync; zero ones left out. */
  get operations(): Record<string, number> {
    return Object.fromEntries(Object.entries(this).filter(([, count]) => count !== 0));
  }
}

/** A flush must be repaired within seconds, however long the sync period is. */
const LONGEST_PAUSE_MS = 5_000;
/** Beyond this number, unused chains are removed at once. */
const MAX_IDLE_CHAINS = 256;

const NO_OTHERS: ReadonlyMap<string, NftContainer> = new Map();

/** The table of one user and family. */
export class NftTable {
  readonly spec: NftTableSpec;
  /** The table. Its text is the mark of its layout, or what is wrong with it. */
  readonly root: KernelObject;
  /** Where the work is counted. */
  figures = new NftFigures();
  readonly #runner: Pick<NftRunner, "chains" | "readWithCode" | "ruleCode" | "write">;
  readonly #mark: string | undefined;
  readonly #others: ReadonlyMap<string, NftContainer>;
  readonly #emptiesUnused: boolean;
  readonly #ownerOf: OwnerOfLine | undefined;
  /** The handles of chains as they were seen since they were written. */
  readonly #handles = new Map<string, string>();
  /** The instructions of the rules of wanted chains, by the text of their chain. */
  #code = new Map<string, readonly string[]>();
  /** Chains that are known to be there, idle ones too. */
  readonly #present = new Set<string>();
  /** The texts of idle chains: nothing leads to them until they are wanted again, or removed by `tidy()`. */
  readonly #idle = new Map<string, string>();
  /** Sets and maps of other programs in this table. */
  #strange: (Pick<NftContainer, "kind"> & { readonly name: string })[] = [];
  #failedRemovals = 0;

  constructor(
    { runner, spec, mark, others = NO_OTHERS, emptiesUnused = false, ownerOf }: {
      readonly runner: Pick<NftRunner, "chains" | "readWithCode" | "ruleCode" | "write">;
      /** With the sets and maps that are always there. */
      readonly spec: NftTableSpec;
      /** The empty chain whose name is the version of the layout. @default {there is none} */
      readonly mark?: string;
      /** The wanted sets and maps that come and go. */
      readonly others?: ReadonlyMap<string, NftContainer>;
      /**
       * Whether a chain that is not wanted loses its rules at once, because they name sets that go with
       * it. The next transaction removes it. @default {it stays as it is, and may be used again}
       */
      readonly emptiesUnused?: boolean;
      /** The owners of lines. @default {those of their objects} */
      readonly ownerOf?: OwnerOfLine;
    },
  ) {
    this.#runner = runner;
    this.spec = spec;
    this.#mark = mark;
    this.#others = others;
    this.#emptiesUnused = emptiesUnused;
    this.#ownerOf = ownerOf;
    const name = `${spec.family} ${spec.name}`;
    this.root = { kind: "table", name, text: mark ?? name };
  }

  /** The same table, for readings that leave alone what is known of this one. */
  twin(): NftTable {
    const twin = new NftTable({
      runner: this.#runner,
      spec: this.spec,
      ...(this.#mark !== undefined && { mark: this.#mark }),
      others: this.#others,
    });
    twin.#code = this.#code;
    return twin;
  }

  /** Removals of unused chains that failed. */
  get failedRemovals(): number {
    return this.#failedRemovals;
  }

  /**
   * Returns the chains that are missing, or that another program has made again since the last look.
   * Lists no rules and no elements.
   */
  async missingChains(): Promise<readonly string[]> {
    let lost = [...this.#present];
    // One listing alone raises no alarm, see nft_runner.ts.
    for (let listings = 0; listings < 2; listings++) {
      const present = await this.#runner.chains();
      lost = lost.filter((name) => {
        const handle = present.get(name);
        return handle === undefined || handle !== (this.#handles.get(name) ?? handle);
      });
      if (lost.length > 0) continue;
      for (const [name, handle] of present) this.#handles.set(name, handle);
      break;
    }
    return lost;
  }

  /**
   * How the table is watched. `nft flush ruleset` removes all chains, even if an older copy of the
   * table is restored. Looking for them costs the same for any number of elements. A small table is
   * also read completely within seconds. `periodMs`: longest time between two looks.
   */
  watch(periodMs: number): Pick<RuleWatch, "look" | "pauseMs" | "shortestMs"> {
    const pauseMs = Math.min(periodMs, LONGEST_PAUSE_MS);
    const look = async () => {
      const missing = await this.missingChains();
      return missing.length > 0 ? { count: missing.length, chain: missing[0] } : undefined;
    };
    return { pauseMs, shortestMs: 2 * pauseMs, look };
  }

  /** Reads the objects. `wanted`: the chains that may be there, by the names of those that are. */
  async read(
    wanted: (names: Iterable<string>) => Iterable<NftChain>,
  ): Promise<{ readonly objects: Objects; readonly table: CodedTable } | undefined> {
    this.figures.reads++;
    let table: CodedTable | undefined;
    try {
      table = await this.#runner.readWithCode();
    } catch (error) {
      // nft 1.0.6 crashes on some foreign maps, or takes too long for all clients of a map.
      throw error instanceof NftError && error.kind === "unclear" ? new Unreadable(error) : error;
    }
    // Not before: after a failed reading, what was known still holds.
    this.#forgetAll();
    if (table === undefined) return undefined;
    for (const name of table.rules.keys()) this.#present.add(name);
    const chains = new Map([...wanted(table.rules.keys())].map((chain) => [chain.name, chain]));
    await this.#learnCode(chains.values());
    const texts = [...table.rules].map(([name, print]) =>
      [name, this.#asWritten(print, chains.get(name), table.code.get(name))] as const
    );
    const objects = new Map<string, ReadonlyMap<string, string>>([
      ["table", new Map([[this.root.name, this.#rootText(table)]])],
      ["chain", new Map(texts)],
    ]);
    const containers = this.#containers;
    for (const kind of ["set", "map"]) {
      const declared = [...table.declarations].filter(([, print]) => print.startsWith(`${kind}\n`));
      const texts = declared.map(([name]) =>
        [name, containers.get(name)?.declaration ?? ""] as const
      );
      objects.set(kind, new Map(texts));
    }
    for (const name of containers.keys()) {
      const elements = table.elements.get(name);
      if (elements) objects.set(name, elements);
    }
    return { objects, table };
  }

  /** `found`: a reading that is compared with what is wanted. */
  begin<Owner extends string>(found?: Objects): Batch<Owner> {
    const intervals = new Map(
      found &&
        [...found].filter(([name]) =>
          this.#others.get(name)?.declaration.includes("interval") === true
        ),
    );
    const draft = new NftDraft({ ownerOf: this.#ownerOf, idle: this.#idle, intervals });
    return {
      add: (object, before, after, owner) => draft.add(object, before, after, owner),
      commit: async () => {
        if (this.#emptiesUnused) this.#empty(draft);
        await this.#write(draft);
        for (const name of [...draft.used, ...draft.removedChains]) this.#idle.delete(name);
        for (const { kind, name, text } of draft.unused) {
          if (kind === "chain") this.#idle.set(name, this.#emptiesUnused ? "" : text);
          else this.#strange.push({ kind, name });
        }
      },
    };
  }

  /** Takes what is not wanted out of use, and removes what was taken out of use before. */
  #empty(draft: NftDraft): void {
    const written = new Set([...draft.used, ...draft.chains.map(({ name }) => name)]);
    draft.removedChains.push(...this.#idle.keys().filter((name) => !written.has(name)));
    for (const { kind, name, text } of draft.unused) {
      if (kind !== "chain") {
        draft.removedContainers.push({ kind, name });
        draft.removed.delete(name);
      } else if (text !== "") draft.chains.push({ name, rules: [] });
    }
    draft.unused = draft.unused.filter(({ kind }) => kind === "chain");
  }

  /**
   * Removes idle chains, if there are many or `all` are to go. Before kernel 6.2, an element that
   * is deleted by the same transaction still holds its chain, so this takes one of its own. Packets
   * never reach such a chain: a failure is counted and does not fail the sync. Returns whether the
   * state is still known.
   */
  async tidy({ all }: { readonly all: boolean }): Promise<boolean> {
    const [removedChains, removedContainers] = [[...this.#idle.keys()], this.#strange];
    const count = removedChains.length + removedContainers.length;
    if (count === 0 || (!all && count < MAX_IDLE_CHAINS)) return true;
    this.#idle.clear();
    this.#strange = [];
    const draft = new NftDraft();
    draft.removedChains.push(...removedChains);
    draft.removedContainers.push(...removedContainers);
    try {
      await this.#run(draft.transaction(this.spec));
    } catch (error) {
      this.#failedRemovals++;
      if (!(error instanceof NftError)) throw error;
      return false;
    }
    this.#forget(removedChains);
    this.figures.removedChains += removedChains.length;
    return true;
  }

  async #write(draft: NftDraft): Promise<void> {
    const { replacesTable } = draft;
    draft.emptyIntervals();
    const containers = new Map(this.spec.containers);
    for (const names of [draft.declared, draft.emptied, draft.removed.keys(), draft.added.keys()]) {
      for (const name of names) {
        const container = this.#others.get(name);
        if (container) containers.set(name, container);
      }
    }
    const transaction = draft.transaction({ ...this.spec, containers });
    if (transaction.lineCount === 0) return;
    await this.#run(transaction).catch((error) => {
      throw refusalOf(error);
    });
    this.#forget(draft.removedChains);
    if (replacesTable) this.#forgetAll();
    for (const { name } of draft.chains) {
      this.#handles.delete(name);
      this.#present.add(name);
      this.#idle.delete(name);
    }
    this.figures.chains += draft.chains.length;
  }

  #forget(chains: readonly string[]): void {
    for (const name of chains) {
      this.#handles.delete(name);
      this.#present.delete(name);
    }
  }

  #forgetAll(): void {
    this.#handles.clear();
    this.#present.clear();
    this.#idle.clear();
    this.#strange = [];
  }

  async #run(transaction: NftTransaction): Promise<void> {
    this.figures.transactions++;
    await this.#runner.write(transaction);
    this.figures.lines += transaction.lineCount;
    this.figures.bytes += transaction.characters;
    this.figures.elements += transaction.elements;
  }

  /** Has the kernel say what the rules of these chains do, unless it is known. */
  async #learnCode(chains: Iterable<NftChain>): Promise<void> {
    const all = [...chains];
    const known = this.#code;
    if (all.every((chain) => known.has(chainText(chain)))) return;
    // Rules may name chains of any kind, so all of them are tried together.
    const containers = this.#containers;
    const code = await this.#runner.ruleCode({ containers }, all, this.#ownerOf).catch((error) => {
      throw refusalOf(error);
    });
    this.#code = new Map(all.map((chain) => [chainText(chain), code.get(chain.name) ?? []]));
  }

  /** The text of a printed chain. `code`: the instructions of its rules. */
  #asWritten(print: string, wanted: NftChain | undefined, code: readonly string[] = []): string {
    const { hook, rules: printed } = readChainPrint(print);
    const rules = printed.map(withProtocolNames);
    if (wanted === undefined) return chainText({ hook, rules });
    const wantedByCode = new Map(
      (this.#code.get(chainText(wanted)) ?? []).map((each, index) => [each, wanted.rules[index]]),
    );
    const isHooked = wanted.hook !== undefined && normalHook(wanted.hook) === hook;
    return chainText({
      hook: isHooked ? wanted.hook : hook,
      rules: rules.map((rule, index) => wantedByCode.get(code[index] ?? "") ?? rule),
    });
  }

  /** That of the wanted root, or what is wrong with the table. */
  #rootText({ declarations, isDormant, rules }: CodedTable): string {
    const mark = this.#mark;
    if (mark !== undefined && !rules.has(mark)) {
      const [prefix = ""] = mark.split("-");
      return [...rules.keys()].find((name) => name.startsWith(`${prefix}-`)) ?? `no ${mark}`;
    }
    if (isDormant) return "flags dormant";
    for (const [name, container] of this.#containers) {
      const print = declarations.get(name);
      // No set can be declared again while a rule looks things up in it.
      if (print === undefined || isDeclaredAs(container, print)) continue;
      return `${container.kind} ${name}: ${print.trim().split("\n").slice(1).join(" ; ")}`;
    }
    return this.root.text;
  }

  get #containers(): ReadonlyMap<string, NftContainer> {
    return this.#others.size === 0
      ? this.spec.containers
      : new Map([...this.spec.containers, ...this.#others]);
  }
}

/** Returns what makes a table of these objects. */
export function nftTransaction(
  table: NftTableSpec,
  objects: Iterable<KernelObject>,
): NftTransaction {
  const draft = new NftDraft();
  const containers = new Map<string, NftContainer>();
  for (const object of objects) {
    const { kind, name, text } = object;
    if (kind === "set" || kind === "map") containers.set(name, { kind, declaration: text });
    draft.add(object, undefined, text);
  }
  return draft.transaction({ ...table, containers });
}

/** The sets and maps of a table, as objects. */
export function containerObjects(
  { containers }: Pick<NftTableSpec, "containers">,
): readonly KernelObject[] {
  return [...containers].map(([name, { kind, declaration }]) => ({
    kind,
    name,
    text: declaration,
  }));
}

/** A chain as an object. */
export function chainObject(chain: NftChain): KernelObject {
  return { kind: "chain", name: chain.name, text: chainText(chain) };
}

/** The chain of an object. */
export function readChain({ name, text }: KernelObject): NftChain {
  return { name, ...readChainText(text) };
}

/** A refusal by the owners of the lines, or the error itself. */
function refusalOf(error: unknown): unknown {
  if (!(error instanceof NftError && error.kind === "refused")) return error;
  const reasons = error.lines.flatMap(({ owner, text, reason }) =>
    owner === undefined ? [] : [[owner, `The kernel refused "${text}": ${reason}`] as const]
  );
  return new Refusal(new Map(reasons), error);
}

/** A difference in words. */
type NftDifference<Owner> = Omit<DataPlaneDifference, "key"> & { readonly key?: Owner };

/**
 * The differences in words. `ownerOf`: the item that an object belongs to which has no owner.
 */
export function nftDifferences<Owner extends string>(
  changes: readonly Change<Owner>[],
  { containers }: Pick<NftTableSpec, "containers">,
  ownerOf: (object: ObjectName) => Owner | undefined,
): readonly NftDifference<Owner>[] {
  // Those of a missing set are not listed one by one.
  const missing = new Set(
    changes.flatMap(({ kind, name, before }) =>
      (kind === "set" || kind === "map") && before === undefined ? name : []
    ),
  );
  return changes.filter(({ kind }) => !missing.has(kind)).flatMap((change) => {
    const { kind: object, name, before, after } = change;
    const kind = after === undefined ? "extra" : before === undefined ? "missing" : "altered";
    const owner = change.owner ?? ownerOf(change);
    const key = owner === undefined ? {} : { key: owner };
    const texts = (text: (content: string) => string) => ({
      ...(after !== undefined && { wanted: text(after) }),
      ...(before !== undefined && { found: text(before) }),
    });
    switch (object) {
      case "table":
      case "set":
      case "map":
        return [{ object, name, kind, ...key, ...texts((text) => text || `${object} ${name}`) }];
      case "chain":
        if (before !== undefined && after !== undefined) {
          return chainDifferences(name, before, after).map((each) => ({ ...each, ...key }));
        }
        return [{ object, name, kind, ...key, ...texts((text) => text.trim() || "no rules") }];
      default: {
        const element = `${containers.get(object)?.kind ?? "set"} element`;
        const text = (value: string) => value === "" ? name : `${name} : ${value}`;
        return [{ object: element, name: `${object} ${name}`, kind, ...key, ...texts(text) }];
      }
    }
  });
}

/** Each rule that differs, and the hook. */
function chainDifferences(name: string, before: string, after: string) {
  const [found, wanted] = [readChainText(before), readChainText(after)];
  const differences: Omit<DataPlaneDifference, "key">[] = [];
  if (found.hook !== wanted.hook) {
    const texts = { wanted: wanted.hook ?? "no hook", found: found.hook ?? "no hook" };
    differences.push({ object: "chain", name, kind: "altered", ...texts });
  }
  for (const { kind, ...at } of compareLists(wanted.rules, found.rules)) {
    const [text, there] = [wanted.rules[at.wanted ?? -1], found.rules[at.found ?? -1]];
    differences.push({
      object: "rule",
      name: `${name}, rule ${(at.wanted ?? at.found ?? 0) + 1}`,
      kind,
      ...(text !== undefined && { wanted: text }),
      ...(there !== undefined && { found: there }),
    });
  }
  return differences;
}
