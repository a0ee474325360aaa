/**
 * The table of policies for the engine: the layout says what is wanted, {@linkcode NftTable} reads
 * and writes it.
 *
 * @module
 */
import type {
  Batch,
  Change,
  KernelObject,
  ObjectChange,
  ObjectName,
  Objects,
} from "../../../lib/engine/reconciler.ts";
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { TimeSlice, urgent } from "../../../lib/os/time_slice.ts";
import type {
  PeerSet,
  PeerSetChange,
  PeerSetId,
  PodKey,
  PodPlan,
  PolicyPlan,
  PolicyRule,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import type { NftChain, NftContainer, NftTableSpec } from "../../netfilter/nft/nft_objects.ts";
import type { NftRunner } from "../../netfilter/nft/nft_runner.ts";
import {
  chainObject,
  nftDifferences,
  NftFigures,
  NftTable,
  nftText,
} from "../../netfilter/nft/nft_table.ts";
import type { PolicyDifference } from "../policy_data_plane.ts";
import {
  acceptableRules,
  type LeftOut,
  type PolicyQuarantine,
  type RefusedParts,
} from "../policy_quarantine.ts";
import { type Part, type PolicyGroup, PolicyTarget } from "../policy_target.ts";
import { baseChains } from "./base_chains.ts";
import {
  fixedContainers,
  listChain,
  listEnd,
  memberKey,
  peerKeys,
  peersContainer,
  peersName,
  podChains,
  podElements,
  policyTable,
  PORT_SET,
  type PortSet,
  portSetOf,
  ruleTexts,
} from "./layout.ts";

/** A set of peers. Its members change in place. */
interface PeersItem {
  readonly id: PeerSetId;
  readonly set: PeerSet;
}

/** A list as it is written. */
interface ListItem {
  readonly chain: NftChain;
  readonly portSets: readonly PortSet[];
  readonly leftOut: LeftOut;
}

interface BaseItem {
  readonly base: readonly KernelObject[];
}

type Item = BaseItem | ListItem | PeersItem | PodPlan;

/** The table of one family. */
export class NftPolicyTarget extends PolicyTarget<Item> {
  readonly table: NftTable;
  override readonly root: KernelObject;
  readonly #clock: Clock;
  /** The sets of peers and ports. */
  readonly #sets = new Map<string, NftContainer>();
  /** Those of a full comparison. */
  #lists: ReadonlyMap<RuleListId, ListItem> | undefined;

  constructor(
    { clock, runner }: {
      readonly clock: Clock;
      readonly runner: Pick<NftRunner, "chains" | "readWithCode" | "ruleCode" | "write">;
    },
    family: IpFamily,
    quarantine: PolicyQuarantine,
  ) {
    super(quarantine);
    this.#clock = clock;
    const spec = tableSpec(family);
    this.table = new NftTable({
      ...{ clock, runner, spec },
      others: this.#sets,
      emptiesUnused: true,
      ownerOf: partOf,
    });
    this.root = this.table.root;
  }

  override want(...wanted: Parameters<PolicyTarget<Item>["want"]>): void {
    this.#lists = undefined;
    super.want(...wanted);
  }

  override leaveOut(reasons: ReadonlyMap<Part, string>): boolean {
    this.#lists = undefined;
    return super.leaveOut(reasons);
  }

  objectsOf(item: Item): Iterable<KernelObject> {
    if ("base" in item) return item.base;
    if ("chain" in item) return listObjects(item);
    if ("set" in item) return peersObjects(item, this.plan.family);
    return podObjects(item, this.plan);
  }

  changesOf(
    key: PolicyGroup,
    applied: Item | undefined,
    item: Item | undefined,
  ): Iterable<ObjectChange> | undefined {
    if (!key.startsWith("peers ")) return undefined;
    const [before, after] = [applied, item] as (PeersItem | undefined)[];
    const { id, set } = (after ?? before)!;
    const name = peersName(id);
    const { declaration } = peersContainer(set, this.plan.family);
    if (after === undefined) {
      return [{ kind: "set", name, before: declaration, after: undefined }];
    }
    const isKept = before?.set === set && this.changes?.peers.has(id) !== true;
    return isKept
      ? memberChanges(name, this.changes?.members.get(id))
      : newSet(name, { declaration, isThere: before !== undefined, set });
  }

  /** An empty chain is harmless. */
  isUnused({ kind, before }: ObjectChange): boolean {
    return kind === "chain" && before === "";
  }

  async read(): Promise<Objects | undefined> {
    const { lists, peers } = this.plan;
    const slice = new TimeSlice(urgent(this.#clock));
    const items = new Map<RuleListId, ListItem>();
    this.#lists = undefined;
    this.#sets.clear();
    for (const id of peers.keys()) this.arrange(`peers ${id}`, undefined);
    for (const id of lists.keys()) {
      items.set(id, this.arrangeList(id));
      const turn = slice.pause();
      if (turn) await turn;
    }
    this.#lists = items;
    const chains = [
      ...baseChains(this.plan),
      ...items.values().map(({ chain }) => chain),
      ...this.plan.pods.values().flatMap((pod) => podChains(pod, this.plan)),
    ];
    return (await this.table.read(() => chains))?.objects;
  }

  begin(found?: Objects): Batch<Part> {
    return this.table.begin(found);
  }

  tidy(options: { readonly all: boolean }): Promise<boolean> {
    return this.table.tidy(options);
  }

  takeCounts(): Readonly<Record<string, number>> {
    const { operations } = this.table.figures;
    this.table.figures = new NftFigures();
    return operations;
  }

  differences(changes: readonly Change<Part>[]): readonly PolicyDifference[] {
    return nftDifferences(changes, this.table.spec, () => undefined);
  }

  protected arrangeBase(): Item {
    return baseItem(this.plan);
  }

  protected arrangePeers(id: PeerSetId, applied: Item | undefined): Item {
    const set = this.plan.peers.get(id)!;
    this.#sets.set(peersName(id), peersContainer(set, this.plan.family));
    const isChanged = this.changes?.members.has(id) || this.changes?.peers.has(id);
    return applied && "set" in applied && applied.set === set && !isChanged ? applied : { id, set };
  }

  protected arrangeList(id: RuleListId): ListItem {
    const item = this.#lists?.get(id) ?? listItem(id, this.plan, this.refused);
    for (const { name } of item.portSets) this.#sets.set(name, PORT_SET);
    return item;
  }

  protected arrangePod(key: PodKey): Item | undefined {
    return this.plan.pods.get(key);
  }

  protected peersName(id: PeerSetId): Part {
    return peersName(id);
  }
}

/** Returns the whole table of a plan, as input for `nft -f`. The same plan gives the same bytes. */
export function renderPolicies(plan: PolicyPlan): readonly string[] {
  return nftText(tableSpec(plan.family), tableObjects(plan));
}

/** All objects of a plan, sorted. */
function* tableObjects(plan: PolicyPlan): Generator<KernelObject> {
  const byKey = <T>([left]: readonly [string, T], [right]: readonly [string, T]) =>
    left < right ? -1 : 1;
  yield* baseItem(plan).base;
  for (const [id, set] of [...plan.peers].sort(byKey)) {
    const [head, ...elements] = peersObjects({ id, set }, plan.family);
    yield head!;
    yield* elements.sort((left, right) => left.name < right.name ? -1 : 1);
  }
  for (const id of [...plan.lists.keys()].sort()) yield* listObjects(listItem(id, plan, new Set()));
  for (const [, pod] of [...plan.pods].sort(byKey)) yield* podObjects(pod, plan);
}

function tableSpec(family: IpFamily): NftTableSpec {
  return { ...policyTable(family), containers: fixedContainers(family) };
}

function baseItem(plan: PolicyPlan): BaseItem {
  const base: KernelObject[] = [];
  for (const [name, { kind, declaration }] of fixedContainers(plan.family)) {
    base.push({ kind, name, text: declaration });
  }
  base.push(...baseChains(plan).map(chainObject));
  return { base };
}

function* peersObjects({ id, set }: PeersItem, family: IpFamily): Generator<KernelObject> {
  const name = peersName(id);
  const { kind, declaration } = peersContainer(set, family);
  yield { kind, name, text: declaration };
  for (const key of peerKeys(set)) yield { kind: name, name: key, text: "" };
}

/** Formats a list, without the parts in quarantine. */
function listItem(
  id: RuleListId,
  plan: PolicyPlan,
  refused: RefusedParts,
): ListItem {
  const list = plan.lists.get(id)!;
  const { direction } = list;
  const spell = (rule: PolicyRule) => ruleTexts(rule, { direction, plan });
  const partsOf = (rule: PolicyRule) => [
    ...spell(rule),
    ...(rule.peers ?? []).map(peersName),
    portSetOf(rule)?.name ?? "",
  ];
  const { rules, leftOut } = acceptableRules(list, { refused, partsOf });
  const texts = [...new Set(rules.flatMap(spell))];
  const portSets = rules.flatMap((rule) => portSetOf(rule) ?? []);
  return {
    chain: { name: listChain(id), rules: [...texts, ...listEnd(plan, direction)] },
    portSets: [...new Map(portSets.map((set) => [set.name, set])).values()],
    leftOut,
  };
}

function* listObjects({ chain, portSets }: ListItem): Generator<KernelObject> {
  yield chainObject(chain);
  for (const { name, keys } of portSets) {
    const { kind, declaration } = PORT_SET;
    yield { kind, name, text: declaration, isShared: true };
    for (const key of keys) yield { kind: name, name: key, text: "", isShared: true };
  }
}

function* podObjects(pod: PodPlan, plan: PolicyPlan): Generator<KernelObject> {
  for (const chain of podChains(pod, plan)) yield chainObject(chain);
  for (const { container, key, value = "" } of podElements(pod, plan)) {
    yield { kind: container, name: key, text: value };
  }
}

function* newSet(
  name: string,
  { declaration, isThere, set }: {
    readonly declaration: string;
    readonly isThere: boolean;
    readonly set: PeerSet;
  },
): Generator<ObjectChange> {
  yield { kind: "set", name, before: isThere ? declaration : undefined, after: declaration };
  for (const key of peerKeys(set)) yield { kind: name, name: key, before: undefined, after: "" };
}

function* memberChanges(kind: string, change?: PeerSetChange): Generator<ObjectChange> {
  for (const member of change?.removed ?? []) {
    yield { kind, name: memberKey(member), before: "", after: undefined };
  }
  for (const member of change?.added ?? []) {
    yield { kind, name: memberKey(member), before: undefined, after: "" };
  }
}

/** The part that a line belongs to: a rule of a policy, or the set of an element. */
function partOf({ kind, name }: ObjectName, rule?: string): Part | undefined {
  if (rule === undefined) return /^(peers|ports)-/.test(kind) ? kind : undefined;
  return name.startsWith("list-") && !rule.startsWith("goto ") ? rule : undefined;
}
