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
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import { TimeSlice, urgent } from "../../../lib/os/time_slice.ts";
import type {
  PeerSet,
  PeerSetId,
  PodPlan,
  PodPort,
  PolicyPlan,
  PolicyRule,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import type { NftContainer, NftTableSpec } from "../../netfilter/nft/nft_objects.ts";
import type { NftRunner } from "../../netfilter/nft/nft_runner.ts";
import {
  chainObject,
  nftDifferences,
  NftFigures,
  NftTable,
  nftText,
  readChain,
} from "../../netfilter/nft/nft_table.ts";
import type { PolicyDifference } from "../policy_data_plane.ts";
import { acceptableRules, type PolicyQuarantine, type RefusedParts } from "../policy_quarantine.ts";
import { type ListItem, type ObjectsItem, type Part, PolicyTarget } from "../policy_target.ts";
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
  portSetOf,
  ruleTexts,
} from "./layout.ts";

/** The table of one family. */
export class NftPolicyTarget extends PolicyTarget {
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

  override want(...wanted: Parameters<PolicyTarget["want"]>): void {
    this.#lists = undefined;
    super.want(...wanted);
  }

  override leaveOut(reasons: ReadonlyMap<Part, string>): boolean {
    this.#lists = undefined;
    return super.leaveOut(reasons);
  }

  /** An empty chain is harmless. */
  isUnused({ kind, before }: ObjectChange): boolean {
    return kind === "chain" && before === "";
  }

  async read(): Promise<Objects | undefined> {
    const { lists, peers } = this.plan;
    const slice = new TimeSlice(urgent(this.#clock));
    const items = new Map<RuleListId, ListItem>();
    this.reads++;
    this.#lists = undefined;
    this.#sets.clear();
    for (const [id, set] of peers) if (!this.refused.has(peersName(id))) this.peers(id, set);
    for (const id of lists.keys()) {
      items.set(id, this.list(id));
      const turn = slice.pause();
      if (turn) await turn;
    }
    this.#lists = items;
    const chains = [
      ...baseChains(this.plan),
      ...items.values().map(({ objects: [chain] }) => readChain(chain!)),
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

  protected base(): ObjectsItem {
    return { objects: baseObjects(this.plan) };
  }

  protected list(id: RuleListId): ListItem {
    const item = this.#lists?.get(id) ?? listItem(id, this.plan, this.refused);
    for (const { kind, name } of item.objects) if (kind === "set") this.#sets.set(name, PORT_SET);
    return item;
  }

  protected podObjects(pod: PodPlan): Iterable<KernelObject> {
    return podObjects(pod, this.plan);
  }

  protected peers(id: PeerSetId, set: PeerSet): KernelObject {
    const container = peersContainer(set, this.plan.family);
    this.#sets.set(peersName(id), container);
    return { kind: "set", name: peersName(id), text: container.declaration };
  }

  *members(set: PeerSet): Generator<readonly [key: string, text: string]> {
    for (const key of peerKeys(set)) yield [key, ""];
  }

  protected memberKey(member: IpAddress | PodPort): string {
    return memberKey(member);
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
  yield* baseObjects(plan);
  for (const [id, set] of [...plan.peers].sort(byKey)) {
    const name = peersName(id);
    const { kind, declaration } = peersContainer(set, plan.family);
    yield { kind, name, text: declaration };
    for (const key of [...peerKeys(set)].sort()) yield { kind: name, name: key, text: "" };
  }
  for (const id of [...plan.lists.keys()].sort()) yield* listItem(id, plan, new Set()).objects;
  for (const [, pod] of [...plan.pods].sort(byKey)) yield* podObjects(pod, plan);
}

function tableSpec(family: IpFamily): NftTableSpec {
  return { ...policyTable(family), containers: fixedContainers(family) };
}

function baseObjects(plan: PolicyPlan): readonly KernelObject[] {
  const base: KernelObject[] = [];
  for (const [name, { kind, declaration }] of fixedContainers(plan.family)) {
    base.push({ kind, name, text: declaration });
  }
  base.push(...baseChains(plan).map(chainObject));
  return base;
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
  const chain = { name: listChain(id), rules: [...texts, ...listEnd(plan, direction)] };
  const objects: KernelObject[] = [chainObject(chain)];
  const portSets = new Map(
    rules.flatMap((rule) => portSetOf(rule) ?? []).map((set) => [set.name, set]),
  );
  for (const { name, keys } of portSets.values()) {
    const { kind, declaration } = PORT_SET;
    objects.push({ kind, name, text: declaration, isShared: true });
    for (const key of keys) objects.push({ kind: name, name: key, text: "", isShared: true });
  }
  return { objects, leftOut };
}

function* podObjects(pod: PodPlan, plan: PolicyPlan): Generator<KernelObject> {
  for (const chain of podChains(pod, plan)) yield chainObject(chain);
  for (const { container, key, value = "" } of podElements(pod, plan)) {
    yield { kind: container, name: key, text: value };
  }
}

/** The part that a line belongs to: a rule of a policy, or the set of an element. */
function partOf({ kind, name }: ObjectName, rule?: string): Part | undefined {
  if (rule === undefined) return /^(peers|ports)-/.test(kind) ? kind : undefined;
  return name.startsWith("list-") && !rule.startsWith("goto ") ? rule : undefined;
}
