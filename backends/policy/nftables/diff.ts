/**
 * From what the table holds to what a plan wants, as one transaction. Pure.
 *
 * A chain is only emptied when the element that led to it goes, and deleted by the next transaction:
 * before kernel 6.2, an element that is deleted by the same transaction still holds its chain.
 *
 * @module
 */
import type {
  PeerSetChange,
  PeerSetId,
  PodKey,
  PodPlan,
  PolicyPlan,
  PolicyPlanChanges,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import type { NftContainer, NftElement, NftTableSpec } from "../../netfilter/nft/nft_objects.ts";
import {
  type ChainChange,
  type ElementChange,
  NftTransaction,
} from "../../netfilter/nft/nft_transaction.ts";
import { isDeclaredAs, normalHook, readChainPrint } from "../../netfilter/nft/printed_form.ts";
import { EMPTY_TABLE, type TableReading } from "../../netfilter/nft/table_listing.ts";
import type { RefusedParts } from "../policy_quarantine.ts";
import type { AppliedChanges, AppliedPolicies } from "./applied_policies.ts";
import {
  fixedContainers,
  listChain,
  memberKey,
  peerKeys,
  peersContainer,
  peersName,
  podChains,
  podElements,
  policyTable,
  PORT_SET,
} from "./layout.ts";
import {
  type Part,
  type WantedElement,
  type WantedTable,
  wantedTable,
  writeList,
} from "./wanted_table.ts";

/** What is written, and what the table holds once it was taken. */
export interface TableDifference {
  readonly transaction: NftTransaction<Part>;
  readonly applied: AppliedChanges;
}

/** Sets between two pauses. */
const SETS_PER_STEP = 128;

/** What brings a table from a reading to the plan; `undefined` = there is no table. */
export function* diffReading(
  plan: PolicyPlan,
  { reading, isSpoilt, refused }: {
    readonly reading: TableReading | undefined;
    /** Nothing of it can be kept. */
    readonly isSpoilt: boolean;
    readonly refused: RefusedParts;
  },
): Generator<void, TableDifference> {
  const wanted = yield* wantedTable(plan, refused);
  const replacesTable = reading !== undefined && (isSpoilt || isAltered(wanted, reading));
  const present = replacesTable || reading === undefined ? EMPTY_TABLE : reading;
  const idle = [...present.rules.keys()].filter((name) => !wanted.chains.has(name));
  const recreated = [...wanted.chains.values()].filter(({ name, hook }) => {
    const print = present.rules.get(name);
    return print !== undefined && readChainPrint(print).hook !== (hook && normalHook(hook));
  });
  const removedContainers = [...present.declarations].flatMap(([name, print]) =>
    wanted.containers.has(name)
      ? []
      : [{ name, kind: print.startsWith("map\n") ? "map" as const : "set" as const }]
  );
  const transaction = yield* NftTransaction.steps<Part, string>(
    { ...policyTable(plan.family), containers: wanted.containers },
    {
      replacesTable,
      declared: wanted.containers.keys(),
      recreated: recreated.map(({ name }) => name),
      chains: [...wanted.chains.values(), ...idle.map((name) => ({ name, rules: [] }))],
      ...yield* elementChanges(wanted, present),
      removedContainers,
    },
  );
  const { lists, peers } = wanted;
  return {
    transaction,
    applied: {
      isWhole: true,
      pods: [...plan.pods],
      lists: [...lists],
      peers: [...peers].map((id) => [id, true]),
      chains: [...wanted.chains.keys()],
      idle,
    },
  };
}

/** Sets and maps of other types, which cannot be changed. */
function isAltered({ containers }: WantedTable, { declarations }: TableReading): boolean {
  return containers.entries().some(([name, container]) => {
    const print = declarations.get(name);
    return print !== undefined && !isDeclaredAs(container, print);
  });
}

type Changes = Map<string, ElementChange<Part, string>[]>;

function* elementChanges(wanted: WantedTable, { elements }: TableReading) {
  const [removed, added]: [Changes, Changes] = [new Map(), new Map()];
  const emptied: string[] = [];
  let compared = 0;
  for (const [container, { declaration }] of wanted.containers) {
    const wantedKeys = wanted.elements.get(container) ?? new Map<string, WantedElement>();
    const present = elements.get(container) ?? new Map<string, string>();
    const gone = [...present].filter(([key, value]) =>
      wantedKeys.get(key) === undefined || (wantedKeys.get(key)?.value ?? "") !== value
    ).map(([key]) => ({ element: { container, key } }));
    // Intervals that take the place of others must not meet them, not even in one transaction.
    const isEmptied = gone.length > 0 && declaration.includes("interval");
    if (isEmptied) emptied.push(container);
    else if (gone.length > 0) removed.set(container, gone);
    const fresh = [...wantedKeys].filter(([key, { value = "" }]) =>
      isEmptied || present.get(key) !== value
    );
    if (fresh.length > 0) {
      added.set(
        container,
        fresh.map(([key, each]) => change(container, key, each)),
      );
    }
    compared += 1 + wantedKeys.size;
    if (compared > SETS_PER_STEP * 10) yield void (compared = 0);
  }
  return { removed, added, emptied };
}

function change(
  container: string,
  key: string,
  { value, owner }: WantedElement,
): ElementChange<Part, string> {
  return { element: { container, key, ...(value !== undefined && { value }) }, owner };
}

/** What brings a known table to the plan. Costs what changed. */
export function* diffChanges(
  plan: PolicyPlan,
  changes: PolicyPlanChanges,
  { applied, refused }: { readonly applied: AppliedPolicies; readonly refused: RefusedParts },
): Generator<void, TableDifference> {
  const draft = new ChangesDraft(plan, applied, refused);
  let seen = 0;
  for (const id of new Set([...changes.peers, ...applied.leftOutPeers(plan)])) {
    draft.takePeers(id);
    if (++seen % SETS_PER_STEP === 0) yield;
  }
  for (const [id, change] of changes.members) {
    if (!changes.peers.has(id)) draft.takeMembers(id, change);
  }
  for (const id of new Set([...changes.lists, ...applied.leftOutLists()])) {
    draft.takeList(id);
    if (++seen % SETS_PER_STEP === 0) yield;
  }
  draft.takePods(changes.pods);
  return yield* draft.end();
}

/** The changes, while they are collected. */
class ChangesDraft {
  readonly #plan: PolicyPlan;
  readonly #applied: AppliedPolicies;
  readonly #refused: RefusedParts;
  readonly #containers: Map<string, NftContainer>;
  readonly #declared: string[] = [];
  readonly #emptied: string[] = [];
  readonly #removedContainers: { readonly kind: "set"; readonly name: string }[] = [];
  readonly #chains: ChainChange<Part>[] = [];
  readonly #idle = new Set<string>();
  readonly #removed = new Map<string, Map<string, NftElement>>();
  readonly #added = new Map<string, Map<string, ElementChange<Part, string>>>();
  readonly #pods: (readonly [PodKey, PodPlan | undefined])[] = [];
  readonly #lists: AppliedChanges["lists"][number][] = [];
  readonly #peers: (readonly [PeerSetId, boolean])[] = [];
  readonly #portSets = new Map<string, { readonly keys: readonly string[]; uses: number }>();

  constructor(plan: PolicyPlan, applied: AppliedPolicies, refused: RefusedParts) {
    this.#plan = plan;
    this.#applied = applied;
    this.#refused = refused;
    this.#containers = new Map(fixedContainers(plan.family));
  }

  #remove(element: NftElement): void {
    const known = this.#removed.get(element.container) ?? new Map<string, NftElement>();
    this.#removed.set(element.container, known.set(element.key, element));
  }

  /** An element that is only moved from one pod to another stays as it is. */
  #add(element: NftElement, owner?: Part): void {
    const { container, key } = element;
    const removed = this.#removed.get(container);
    const old = removed?.get(key);
    if (old && old.value === element.value) return void removed?.delete(key);
    const known = this.#added.get(container) ?? new Map();
    this.#added.set(container, known.set(key, { element, owner }));
  }

  takePeers(id: PeerSetId): void {
    const set = this.#plan.peers.get(id);
    const name = peersName(id);
    const isThere = this.#applied.peers.has(id);
    if (set === undefined || this.#refused.has(name)) {
      if (isThere) this.#removedContainers.push({ kind: "set", name });
      if (isThere) this.#peers.push([id, false]);
      return;
    }
    const container = peersContainer(set, this.#plan.family);
    this.#containers.set(name, container);
    if (isThere) this.#emptied.push(name);
    else this.#declared.push(name);
    this.#peers.push([id, true]);
    for (const key of peerKeys(set)) this.#add({ container: name, key }, name);
  }

  takeMembers(id: PeerSetId, { added, removed }: PeerSetChange): void {
    const set = this.#plan.peers.get(id);
    if (set === undefined || !this.#applied.peers.has(id)) return;
    const container = peersName(id);
    this.#containers.set(container, peersContainer(set, this.#plan.family));
    for (const member of removed) this.#remove({ container, key: memberKey(member) });
    for (const member of added) this.#add({ container, key: memberKey(member) }, container);
  }

  takeList(id: RuleListId): void {
    const list = this.#plan.lists.get(id);
    const before = this.#applied.lists.get(id);
    if (list === undefined) {
      if (before === undefined) return;
      this.#retire(listChain(id));
      this.#countPortSets(before.portSets, -1);
      this.#lists.push([id, undefined]);
      return;
    }
    const written = writeList(id, list, { plan: this.#plan, refused: this.#refused });
    // Its name says what it holds.
    if (before && `${[...before.leftOut]}` === `${[...written.leftOut]}`) return;
    this.#chains.push(written.chain);
    this.#countPortSets(before?.portSets ?? [], -1);
    this.#countPortSets(written.portSets, 1);
    this.#lists.push([id, written]);
  }

  takePods(keys: ReadonlySet<PodKey>): void {
    const plan = this.#plan;
    const unused = new Set<string>();
    for (const key of keys) {
      const before = this.#applied.pods.get(key);
      if (before === undefined) continue;
      for (const element of podElements(before, plan)) this.#remove(element);
      for (const { name } of podChains(before, plan)) unused.add(name);
    }
    for (const key of keys) {
      const pod = plan.pods.get(key);
      this.#pods.push([key, pod]);
      if (pod === undefined) continue;
      for (const element of podElements(pod, plan)) this.#add(element);
      for (const chain of podChains(pod, plan)) {
        this.#chains.push(chain);
        unused.delete(chain.name);
      }
    }
    for (const name of unused) this.#retire(name);
  }

  /** Its rules go now, since they name sets that may go; the chain itself the next time. */
  #retire(name: string): void {
    this.#chains.push({ name, rules: [] });
    this.#idle.add(name);
  }

  #countPortSets(
    sets: readonly { readonly name: string; readonly keys: readonly string[] }[],
    step: 1 | -1,
  ): void {
    for (const { name, keys } of sets) {
      const known = this.#portSets.get(name) ?? { keys, uses: this.#applied.portSetUses(name) };
      known.uses += step;
      this.#portSets.set(name, known);
    }
  }

  *end(): Generator<void, TableDifference> {
    for (const [name, { keys, uses }] of this.#portSets) {
      const isThere = this.#applied.portSetUses(name) > 0;
      if (uses === 0 && isThere) this.#removedContainers.push({ kind: "set", name });
      if (uses === 0 || isThere) continue;
      this.#containers.set(name, PORT_SET);
      this.#declared.push(name);
      const elements = keys.map((key) => [key, change(name, key, { owner: name })] as const);
      this.#added.set(name, new Map(elements));
    }
    const made = new Set(this.#chains.map(({ name }) => name));
    const removedChains = [...this.#applied.idle].filter((name) => !made.has(name));
    const spec: NftTableSpec = { ...policyTable(this.#plan.family), containers: this.#containers };
    const removed = [...this.#removed].map(([name, elements]) =>
      [name, [...elements.values()].map((element) => ({ element }))] as const
    );
    const added = [...this.#added].map(([name, elements]) =>
      [name, [...elements.values()]] as const
    );
    const transaction = yield* NftTransaction.steps<Part, string>(spec, {
      ...(this.#declared.length > 0 && { declared: this.#declared }),
      emptied: this.#emptied,
      chains: this.#chains,
      removed: new Map(removed),
      added: new Map(added),
      removedChains,
      removedContainers: this.#removedContainers,
    });
    return {
      transaction,
      applied: {
        isWhole: false,
        pods: this.#pods,
        lists: this.#lists,
        peers: this.#peers,
        chains: [...made].filter((name) => !this.#idle.has(name)),
        idle: [...this.#idle],
      },
    };
  }
}
