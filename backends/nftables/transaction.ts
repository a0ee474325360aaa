/**
 * Input for one `nft -f -`, which the kernel takes in one piece or not at all. Pure.
 *
 * @module
 */
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { AppliedChanges } from "./applied_table.ts";
import { type Chain, TABLE } from "./base_chains.ts";
import { CONTAINER_NAMES, type ContainerName, containersOf, type Element } from "./containers.ts";
import { EXPRESSIONS } from "./expressions.ts";

/** An element that comes or goes, and whose it is. */
export interface ElementChange {
  readonly element: Element;
  readonly owner: ServicePortKey | undefined;
}

/** What changes, by kind; each kind is written as a whole, in this order. */
export interface TableChanges {
  /** Nothing of the table can be kept: it goes first. */
  readonly replacesTable: boolean;
  /** Whether the table with its sets and maps is written. */
  readonly declares: boolean;
  /** Chains to make, or to empty, and fill. */
  readonly chains: readonly Chain[];
  readonly removed: ReadonlyMap<ContainerName, readonly ElementChange[]>;
  readonly added: ReadonlyMap<ContainerName, readonly ElementChange[]>;
  /** Chains to take away, that nothing leads to. */
  readonly removedChains: readonly string[];
  /** Chains that are deleted before they are made: their hook can't be changed. @default {none} */
  readonly recreated?: readonly string[];
  /** Sets and maps that are not ours, after everything else. @default {none} */
  readonly removedContainers?: readonly { readonly kind: "map" | "set"; readonly name: string }[];
  readonly applied: AppliedChanges;
}

/** About as much as a pipe takes at once. */
const CHUNK_CHARACTERS = 65_536;
/** Well under a millisecond. */
const LINES_PER_STEP = 2_000;

/** The input, line by line, and what will be there once it was taken. */
export class Transaction {
  readonly lines: readonly string[];
  /** For {@linkcode AppliedTable.confirm}. */
  readonly applied: AppliedChanges;
  /** Elements that are added or deleted. */
  readonly elements: number;
  readonly #owners: ReadonlyMap<number, ServicePortKey>;

  private constructor(draft: Draft, applied: AppliedChanges) {
    this.lines = draft.lines;
    this.elements = draft.elements;
    this.#owners = draft.owners;
    this.applied = applied;
  }

  /** Makes a transaction in short steps: others may have their turn between two of them. */
  static *steps(family: IpFamily, changes: TableChanges): Generator<void, Transaction, void> {
    const draft = new Draft(EXPRESSIONS[family].table);
    if (changes.replacesTable) {
      // Deleting one that has gone meanwhile would fail.
      for (const verb of ["add", "delete"]) draft.add(`${verb} table`);
    }
    if (changes.declares) draft.declare(family);
    for (const name of changes.recreated ?? []) draft.add("delete chain", name);
    for (const chain of changes.chains) draft.chain(chain);
    // Before the additions: a value is changed by taking its element away and adding it anew.
    yield* draft.change("delete", changes.removed);
    // The rules of a chain may name chains that come after it.
    for (const chain of changes.chains) draft.rules(chain);
    yield* draft.change("add", changes.added);
    // Chains of another version may lead to each other.
    for (const action of ["flush chain", "delete chain"]) {
      for (const name of changes.removedChains) draft.add(action, name);
    }
    for (const { kind, name } of changes.removedContainers ?? []) draft.add(`delete ${kind}`, name);
    return new Transaction(draft, changes.applied);
  }

  /** Whether there is nothing to do. */
  get isEmpty(): boolean {
    return this.lines.length === 0;
  }

  /** The ServicePort that a line is for. Lines count from 1, as in the tool's messages. */
  ownerOf(line: number): ServicePortKey | undefined {
    return this.#owners.get(line);
  }

  /** The input in pieces of about 64 KiB. */
  *text(): Generator<string> {
    let piece = "";
    for (const line of this.lines) {
      piece += `${line}\n`;
      if (piece.length < CHUNK_CHARACTERS) continue;
      yield piece;
      piece = "";
    }
    if (piece !== "") yield piece;
  }
}

/** A transaction under way. */
class Draft {
  readonly lines: string[] = [];
  readonly owners = new Map<number, ServicePortKey>();
  elements = 0;
  readonly #table: string;

  constructor(family: "ip" | "ip6") {
    this.#table = `${family} ${TABLE}`;
  }

  add(action: string, rest = ""): void {
    this.lines.push(`${action} ${this.#table}${rest === "" ? "" : ` ${rest}`}`);
  }

  declare(family: IpFamily): void {
    this.add("add table");
    const containers = containersOf(family);
    for (const name of CONTAINER_NAMES) {
      const { kind, declaration } = containers[name];
      this.add(`add ${kind}`, `${name} { ${declaration} ; }`);
    }
  }

  chain({ name, hook }: Chain): void {
    // With its policy: of a chain that is there, what is not said stays as somebody has set it.
    this.add("add chain", hook === undefined ? name : `${name} { ${hook} ; policy accept ; }`);
    this.add("flush chain", name);
  }

  rules({ name, rules }: Chain): void {
    for (const rule of rules) this.add("add rule", `${name} ${rule}`);
  }

  /** One element a line: so the tool's messages tell which one the kernel refused. */
  *change(
    verb: "add" | "delete",
    changes: ReadonlyMap<ContainerName, readonly ElementChange[]>,
  ): Generator<void, void, void> {
    for (const container of CONTAINER_NAMES) {
      const list = changes.get(container) ?? [];
      if (list.length === 0) continue;
      this.add(`${verb} element`, `${container} {`);
      for (const [index, { element: { key, value }, owner }] of list.entries()) {
        const text = verb === "add" && value !== undefined ? `${key} : ${value}` : key;
        this.lines.push(`  ${text}${index < list.length - 1 ? "," : ""}`);
        if (owner !== undefined) this.owners.set(this.lines.length, owner);
        if (index % LINES_PER_STEP === LINES_PER_STEP - 1) yield;
      }
      this.lines.push("}");
      this.elements += list.length;
    }
  }
}
