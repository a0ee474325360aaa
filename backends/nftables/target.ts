/**
 * The table of Services for the engine: the layout says what is wanted, {@linkcode NftTable} reads
 * and writes it. Groups are the ServicePorts of the layout, and what belongs to no Service. Endpoints have
 * numbers: they are kept by what was applied, or after a restart by what was read.
 *
 * @module
 */
import type { Batch, KernelObject, ObjectName, Objects } from "../../lib/engine/reconciler.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { TimeSlice, urgent } from "../../lib/os/time_slice.ts";
import { frontendsOf } from "../../lib/proxy/frontend.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { NftChain } from "../netfilter/nft/nft_objects.ts";
import type { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { chainObject, containerObjects, NftFigures, NftTable } from "../netfilter/nft/nft_table.ts";
import type { TableElements } from "../netfilter/nft/table_listing.ts";
import { quarantineRefused, RefusedItems } from "../netfilter/refused_items.ts";
import type { RuleTarget } from "../netfilter/rule_backend.ts";
import { baseChains, chainRules, LAYOUT_MARK, readChainName } from "./chain_spec.ts";
import { servicesTable } from "./containers.ts";
import { type NftablesLayout, sharedElements } from "./layout.ts";
import { addressElements, frontendName, type NumberedService } from "./service_objects.ts";

/** What belongs to no Service: chains, sets, and elements such as the ranges of Services. */
interface SharedItem {
  readonly shared: SharedPlan;
  readonly objects: readonly KernelObject[];
}

const SHARED = "shared";
type Key = ServicePortKey | typeof SHARED;
type Item = NumberedService | SharedItem;

interface TargetDependencies {
  readonly clock: Clock;
  readonly runner: Pick<NftRunner, "chains" | "readWithCode" | "ruleCode" | "write">;
}

/** The ServicePort that a group is; `undefined` = what belongs to no Service. */
export function asService(item: unknown): NumberedService | undefined {
  const group = item as Item | undefined;
  return group === undefined || "objects" in group ? undefined : group;
}

/** The table of one family. */
export class NftablesTarget implements RuleTarget<NftablesLayout> {
  readonly table: NftTable;
  readonly root: KernelObject;
  layout!: NftablesLayout;
  readonly refused = new RefusedItems();
  readonly #clock: Clock;
  /** The elements of the last reading, until its differences are written. */
  #found: TableElements | undefined;

  constructor({ clock, runner }: TargetDependencies, family: IpFamily) {
    this.#clock = clock;
    this.table = new NftTable({ runner, spec: servicesTable(family), mark: LAYOUT_MARK });
    this.root = this.table.root;
  }

  get operations(): Record<string, number> {
    return this.table.figures.operations;
  }

  countAnew(): void {
    this.table.figures = new NftFigures();
  }

  *keys(): Generator<Key> {
    yield SHARED;
    yield* this.layout.plans.keys();
  }

  *dirty(): Generator<Key> {
    yield SHARED;
    yield* this.layout.dirty;
  }

  settle(): void {
    this.#found = undefined;
    this.layout.settle();
  }

  arrange(key: Key, applied: Item | undefined): Item | undefined {
    if (key === SHARED) return this.#sharedItem(applied);
    return this.layout.numbered(key, asService(applied), this.#found);
  }

  objectsOf(item: Item): Iterable<KernelObject> {
    return "objects" in item ? item.objects : this.layout.objectsOf(item);
  }

  ownerOf(item: Item): ServicePortKey | undefined {
    return "objects" in item ? undefined : item.plan.key;
  }

  /**
   * Returns the ServicePorts that elements belong to, or would if they were wanted. The key of an element is
   * that of its frontend, in some containers followed by a number or a range. `asked`: has those that it
   * shares with others.
   */
  elementOwners(
    asked: Iterable<ServicePortKey> = [],
  ): (object: ObjectName) => ServicePortKey | undefined {
    const owners = new Map<string, ServicePortKey>();
    const { plans } = this.layout;
    for (const key of [...asked, ...plans.keys()]) {
      const plan = plans.get(key);
      if (plan === undefined) continue;
      const names = frontendsOf(plan).map((frontend) => frontendName(frontend, plan));
      for (const { kind, name } of [...names, ...addressElements(plan)]) {
        owners.getOrInsert(`${kind} ${name}`, plan.key);
      }
    }
    return ({ kind, name }) => {
      const hasMore = /(endpoints|choices|source-ranges)$/.test(kind);
      const front = hasMore ? name.slice(0, name.lastIndexOf(" . ")) : name;
      const container = kind.startsWith("node-port") ? "node-ports" : "service-ips";
      return owners.get(`${container} ${front}`) ?? owners.get(`${kind} ${name}`);
    };
  }

  /** A chain that chooses an endpoint: packets reach it by its number, which is removed at once. */
  isUnused({ kind, name }: ObjectName): boolean {
    return kind === "chain" && readChainName(name) !== undefined;
  }

  async read(): Promise<Objects | undefined> {
    this.#found = undefined;
    const reading = await this.table.read((names) => this.#knownChains(names));
    // All of another table is written anew, so nothing of it is kept.
    if (reading?.objects.get("table")?.get(this.root.name) !== this.root.text) {
      return reading?.objects;
    }
    this.#found = reading.table.elements;
    const slice = new TimeSlice(urgent(this.#clock));
    for (const plan of this.layout.plans.values()) {
      const turn = slice.pause();
      if (turn) await turn;
      this.layout.adoptSlots(plan, this.#found);
    }
    return reading.objects;
  }

  async readBeside(): Promise<Objects | undefined> {
    return (await this.table.twin().read((names) => this.#knownChains(names)))?.objects;
  }

  *groupsOf(services: readonly ServicePlan[]): Generator<Key> {
    yield SHARED;
    for (const { key } of services) yield key;
  }

  begin(): Batch<ServicePortKey> {
    return this.table.begin();
  }

  tidy(options: { readonly all: boolean }): Promise<boolean> {
    return this.table.tidy(options);
  }

  leaveOut(reasons: ReadonlyMap<ServicePortKey, string>): boolean {
    return quarantineRefused(this.layout, reasons, this.refused, this.#clock);
  }

  #sharedItem(applied: Item | undefined): SharedItem {
    const { layout } = this;
    if (applied && "objects" in applied && applied.shared === layout.shared) return applied;
    return {
      shared: layout.shared,
      objects: [
        ...containerObjects(this.table.spec),
        ...baseChains(layout).map(chainObject),
        ...sharedElements(layout),
      ],
    };
  }

  /** The chains that this version may have written under these names. */
  *#knownChains(names: Iterable<string>): Generator<NftChain> {
    yield* baseChains(this.layout);
    for (const name of names) {
      const spec = readChainName(name);
      if (spec) yield { name, rules: chainRules(spec, this.layout) };
    }
  }
}
