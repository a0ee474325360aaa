/**
 * The table of Services for the engine: the layout says what is wanted, {@linkcode NftTable} reads
 * and writes it. Groups are the entries of the layout, each of which is a frontend of a ServicePort, and
 * what belongs to no Service. Endpoints have numbers in their entry: they are kept by what was applied, or
 * after a restart by what was read.
 *
 * @module
 */
import type { Batch, KernelObject, ObjectName, Objects } from "../../lib/engine/reconciler.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { inSteps } from "../netfilter/in_steps.ts";
import type { NftChain } from "../netfilter/nft/nft_objects.ts";
import type { NftRunner } from "../netfilter/nft/nft_runner.ts";
import { chainObject, containerObjects, NftFigures, NftTable } from "../netfilter/nft/nft_table.ts";
import type { TableElements } from "../netfilter/nft/table_listing.ts";
import { quarantineRefused, RefusedItems } from "../netfilter/refused_items.ts";
import type { RuleTarget } from "../netfilter/rule_backend.ts";
import { FIRST_NUMBER, LAYOUT_MARK, LOCAL_OFFSET, readChainName } from "./chain_spec.ts";
import { servicesTable } from "./containers.ts";
import {
  claimsOf,
  elementsOf,
  type EndpointOrder,
  type Entry,
  type EntryId,
  isNodePort,
  keyOfEntry,
} from "./entry.ts";
import type { NftablesLayout } from "./layout.ts";
import { slotText } from "./slots.ts";

/** What belongs to no Service: chains, sets, and elements such as the ranges of Services. */
interface SharedItem {
  readonly shared: SharedPlan;
  readonly objects: readonly KernelObject[];
}

const SHARED = "shared";
type Key = EntryId | typeof SHARED;
type Item = Entry | SharedItem;

interface TargetDependencies {
  readonly clock: Clock;
  readonly runner: Pick<NftRunner, "chains" | "readWithCode" | "ruleCode" | "write">;
}

/** The entry that a group is; `undefined` = what belongs to no Service. */
export function asEntry(item: unknown): Entry | undefined {
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
  readonly #runner: TargetDependencies["runner"];
  /** The elements of the last reading, until its differences are written. */
  #found: TableElements | undefined;

  constructor({ clock, runner }: TargetDependencies, family: IpFamily) {
    this.#clock = clock;
    this.#runner = runner;
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
    yield* this.layout.ids();
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
    const { layout } = this;
    if (key === SHARED) return this.#sharedItem(applied);
    // Another process may have numbered the endpoints.
    if (applied === undefined && this.#found) {
      const usual = layout.entry(key, undefined);
      return usual && layout.orderedEntry(key, foundOrder(usual, this.#found));
    }
    return layout.entry(key, applied as Entry | undefined);
  }

  objectsOf(item: Item): readonly KernelObject[] {
    return "objects" in item ? item.objects : this.layout.objectsOf(item);
  }

  ownerOf(item: Item): ServicePortKey | undefined {
    return "objects" in item ? undefined : item.plan.key;
  }

  /**
   * The ServicePort whose entry an element would belong to, though it is not wanted. The key of an element is
   * that of its frontend, in some containers followed by a number or a range.
   */
  ownerOfExtra({ kind, name }: ObjectName): ServicePortKey | undefined {
    const hasMore = /(endpoints|choices|source-ranges)$/.test(kind);
    const front = hasMore ? name.slice(0, name.lastIndexOf(" . ")) : name;
    const container = kind.startsWith("node-port") ? "node-ports" : "service-ips";
    return this.layout.ownerOf(`${container} ${front}` as EntryId) ??
      this.layout.ownerOf(`${kind} ${name}` as EntryId);
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
    await inSteps({ clock: this.#clock }, this.layout.adoptSlots(this.#found));
    return reading.objects;
  }

  async readBeside(): Promise<Objects | undefined> {
    const table = new NftTable({ runner: this.#runner, spec: this.table.spec, mark: LAYOUT_MARK });
    return (await table.read((names) => this.#knownChains(names)))?.objects;
  }

  *groupsOf(services: readonly ServicePlan[]): Generator<Key> {
    yield SHARED;
    for (const plan of services) {
      yield* claimsOf(plan).filter((id) => this.layout.ownerOf(id) === plan.key);
    }
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
        ...layout.baseChains().map(chainObject),
        ...layout.sharedElements(),
      ],
    };
  }

  /** The chains that this version may have written under these names. */
  *#knownChains(names: Iterable<string>): Generator<NftChain> {
    yield* this.layout.baseChains();
    for (const name of names) {
      const spec = readChainName(name);
      if (spec) yield { name, rules: this.layout.chainRules(spec) };
    }
  }
}

/** The placeholder for a number without an endpoint. */
const NO_ENDPOINT: Pick<Endpoint, "key"> = { key: "" as EndpointKey };

/**
 * Returns the order of endpoints in elements that were found. `usual`: the entry as it would be numbered
 * anew, by which the text of each endpoint is known.
 */
function foundOrder(usual: Entry, found: TableElements): EndpointOrder {
  const { id, main, local, plan } = usual;
  if (main.length + local.length < 2) return usual;
  const list = plan.affinityTimeoutSeconds === undefined ? "endpoints" : "choices";
  const container = isNodePort(id) ? `node-port-${list}` : list;
  const endpoints = [...main, ...local];
  const byValue = new Map<string, Endpoint>();
  for (const { kind, name, text } of elementsOf(usual)) {
    if (kind !== container) continue;
    const number = Number(name.slice(name.lastIndexOf(" ") + 1)) - FIRST_NUMBER;
    const index = number < LOCAL_OFFSET ? number : number - LOCAL_OFFSET + main.length;
    const endpoint = endpoints[index];
    if (endpoint) byValue.set(text, endpoint);
  }
  const values = found.get(container);
  const inOrder = (offset: number, count: number) =>
    Array.from({ length: count }, (_, index) => {
      const number = slotText(FIRST_NUMBER + offset + index);
      return byValue.get(values?.get(`${keyOfEntry(id)} . ${number}`) ?? "") ?? NO_ENDPOINT;
    });
  return { main: inOrder(0, main.length), local: inOrder(LOCAL_OFFSET, local.length) };
}
