/**
 * The desired rules of every chain. Pure except for its own state; it does not read the kernel.
 *
 * ```
 * KUBE-SERVICES ─┬─► KUBE-VIP-0a600000-16 ─┬─► KUBE-VIP-0a600000-28 ─► 16 addresses with endpoints
 *                │                         └─► KUBE-VIP-0a600010-28 ─► …
 *                ├── addresses that have no chain yet
 *                └─► KUBE-NODEPORTS ─┬─► KUBE-NP-t7400-6 ─► …
 *                                    └── …
 * ```
 *
 * Rules are not kept: a write renders a chain from the plans of its ServicePorts. So 10,000
 * ServicePorts take a few megabytes, and the cost of a change is proportional to the change.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { type IptablesTable, type Rule, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { targetOf } from "../netfilter/iptables/iptables_save.ts";
import { baseChains, LOOPBACK_RANGE, type TreeId, TREES, type TreeSpec } from "./base_chains.ts";
import { prefixLabel, prefixMatch } from "./packet_path.ts";
import { PrefixTree, type TreeEntry } from "./prefix_tree.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import { entryId, renderService, type ServiceRules } from "./render_service.ts";
import {
  type IpAddress,
  type IpFamily,
  isLoopback,
  parseIpAddress,
} from "../../lib/net/ip_address.ts";
import { prefixChainName } from "../netfilter/names.ts";

/** The part of an entry that the trees keep. */
interface LayoutEntry extends TreeEntry {
  readonly key: ServicePortKey;
}

/** What the rules of a wanted chain depend on, so that they can be rendered again. */
export interface ChainItem {
  readonly layout: IptablesLayout;
  readonly ref: ChainRef;
  /** The prefixes of the chains below it in its tree. */
  readonly children: readonly string[];
  readonly entries: readonly LayoutEntry[];
  /** The plan of each entry, or of the ServicePort that alone has the chain. */
  readonly plans: readonly ServicePlan[];
  /** Of the roots that lead to node ports. */
  readonly shared: SharedPlan | undefined;
}

/** Rules in a chain that handle packets of a ServicePort, without the chain. */
interface ServicePortRules {
  readonly table: IptablesTable;
  readonly chain: string;
  readonly rules: readonly string[];
  /** Whether they lead packets of other ServicePorts too. */
  readonly isShared?: true;
}

const SHARED_ROOTS: readonly TreeId[] = ["services", "refusedExternal"];

/** The desired chains, and which of them may differ from the applied ones. */
export class IptablesLayout {
  readonly options: IptablesRenderOptions;
  readonly #base: ReturnType<typeof baseChains>;
  readonly #trees: Readonly<Record<TreeId, PrefixTree<LayoutEntry>>>;
  readonly #plans = new Map<ServicePortKey, ServicePlan>();
  readonly #quarantined = new Map<ServicePortKey, readonly Quarantined[]>();
  /** The texts of plans since the last {@linkcode settle}. */
  readonly #texts = new Map<ServicePlan, ServiceRules>();
  readonly #dirty = new Set<string>();
  /** Whether it was applied once; before, all chains are dirty. */
  #isApplied = false;
  /** Chains of their own, of ServicePorts that have any: most have none. */
  readonly #ownChains = new Map<ServicePortKey, readonly string[]>();
  #shared: SharedPlan;

  constructor(shared: SharedPlan, options: IptablesRenderOptions) {
    this.options = options;
    this.#shared = shared;
    this.#base = baseChains(options);
    const trees = TREE_IDS.map((tree) =>
      [
        tree,
        new PrefixTree<LayoutEntry>((prefix) => void this.#dirty.add(`${tree} ${prefix}`)),
      ] as const
    );
    this.#trees = Object.fromEntries(trees) as Record<TreeId, PrefixTree<LayoutEntry>>;
  }

  /** ServicePorts that cannot be expressed, and those passed to {@linkcode quarantine}. */
  get quarantined(): readonly Quarantined[] {
    return [...this.#quarantined.values()].flat();
  }

  /** The keys of the chains that may differ from the applied ones, including chains no longer wanted. */
  get dirtyKeys(): Iterable<string> {
    return this.#isApplied ? this.#dirty : this.keys();
  }

  /** The plan by which a ServicePort has rules; `undefined` = it has none. */
  plan(key: ServicePortKey): ServicePlan | undefined {
    return this.#plans.get(key);
  }

  /** Gives a ServicePort the rules of a plan, and takes it out of quarantine. */
  set(plan: ServicePlan): void {
    const previous = this.#plans.get(plan.key);
    if (previous === plan) return;
    this.#plans.set(plan.key, plan);
    const rules = this.#textOf(plan);
    this.#replace(plan.key, previous && this.#textOf(previous), rules);
    if (rules.quarantined.length === 0) this.#quarantined.delete(plan.key);
    else this.#quarantined.set(plan.key, rules.quarantined);
  }

  /** Removes the rules of a ServicePort. */
  delete(key: ServicePortKey): void {
    const plan = this.#plans.get(key);
    this.#quarantined.delete(key);
    if (plan === undefined) return;
    this.#replace(key, this.#textOf(plan), undefined);
    this.#plans.delete(key);
  }

  /** Removes the rules of a ServicePort that the kernel refused, until it is set again. */
  quarantine(item: Quarantined): void {
    this.delete(item.key);
    this.#quarantined.set(item.key, [item]);
  }

  /** The addresses of the node may have changed; the detector of local traffic never does. */
  setShared(shared: SharedPlan): void {
    this.#shared = shared;
    for (const tree of SHARED_ROOTS) this.#dirty.add(`${tree} `);
  }

  /** Records that the desired state was applied. */
  settle(): void {
    this.#isApplied = true;
    for (const tree of TREE_IDS) this.#trees[tree].track();
    this.#dirty.clear();
    this.#texts.clear();
  }

  /** The key of every desired chain, in no order. Walks over all of them. */
  *keys(): Generator<string> {
    for (const ref of this.lasting()) yield keyOf(ref);
    for (const tree of TREE_IDS) {
      for (const prefix of this.#trees[tree].prefixes()) {
        if (prefix !== "") yield `${tree} ${prefix}`;
      }
    }
    for (const [key, names] of this.#ownChains) {
      for (const name of names) yield keyOf(serviceRef(key, name));
    }
  }

  /** As {@linkcode keys}, of those that lead packets to a ServicePort. */
  *keysFor(service: ServicePlan): Generator<string> {
    for (const ref of this.lasting()) yield keyOf(ref);
    for (const { tree, path } of this.#textOf(service).entries.values()) {
      for (const prefix of this.#trees[tree].branch(path)) yield `${tree} ${prefix}`;
    }
    for (const name of this.#ownChains.get(service.key) ?? []) {
      yield keyOf(serviceRef(service.key, name));
    }
  }

  /** Every desired chain, in no order. */
  *chains(): Generator<ChainRef> {
    for (const key of this.keys()) yield refOf(key, this.options.family);
  }

  /** A desired chain; the applied one if nothing of it changed, and `undefined` if it is not wanted. */
  item(key: string, applied?: ChainItem): ChainItem | undefined {
    const item = this.#itemOf(refOf(key, this.options.family));
    const isSame = applied && item && applied.layout === this && applied.shared === item.shared &&
      isSameList(applied.children, item.children) && isSameList(applied.entries, item.entries) &&
      isSameList(applied.plans, item.plans);
    return isSame ? applied : item;
  }

  /** The desired chains with their contents: all of them, or some. */
  *contents(isSought: (chain: ChainRef) => boolean = () => true): Generator<LaidOutChain> {
    for (const ref of this.chains()) {
      const item = isSought(ref) ? this.#itemOf(ref) : undefined;
      if (item) yield { ...ref, ...this.contentOf(item) };
    }
  }

  /** The content of a chain of this layout, as it is or was wanted. */
  contentOf({ ref: { table, name, source }, ...item }: ChainItem): ChainContent {
    switch (source.kind) {
      case "base":
        return ownedBy(undefined, this.#base[table].get(name)?.map(ruleText));
      case "tree":
        return this.#treeContent(source.tree, source.prefix, item);
      case "service":
        return ownedBy(source.key, this.#textOf(item.plans[0]!).chains.get(name));
    }
  }

  /**
   * The rules of a ServicePort for some paths: the jumps that lead to the chain of a path, its rules
   * there, and its own chains in the order in which rules lead to them.
   */
  *rulesFor(service: ServicePlan, paths: readonly string[]): Generator<ServicePortRules> {
    const { entries, chains } = this.#textOf(service);
    const left = new Map(chains);
    function* chainsOf(rules: readonly string[]): Generator<ServicePortRules> {
      for (const chain of rules.map((rule) => targetOf(rule) ?? "")) {
        const below = left.get(chain);
        if (below === undefined) continue;
        left.delete(chain);
        yield { table: "nat", chain, rules: below };
        yield* chainsOf(below);
      }
    }
    for (const { tree, path, rules } of entries.values()) {
      if (!paths.includes(path) || rules.length === 0) continue;
      const { table, root }: TreeSpec = TREES[tree];
      let chain = root;
      for (const prefix of this.#trees[tree].branch(path).slice(1)) {
        const { name } = this.#ref(tree, prefix);
        const jump = this.#jump(tree, prefix, chain === root);
        yield { table, chain, rules: [jump], isShared: true };
        chain = name;
      }
      yield { table, chain, rules };
      yield* chainsOf(rules);
    }
  }

  /** The permanent chains, from the first sync to the last. */
  *lasting(): Generator<ChainRef> {
    for (const table of ["mangle", "filter", "nat"] as const satisfies IptablesTable[]) {
      for (const name of this.#base[table].keys()) yield { table, name, source: { kind: "base" } };
    }
    for (const tree of TREE_IDS) yield this.#ref(tree, "");
  }

  #itemOf(ref: ChainRef): ChainItem | undefined {
    const { table, name, source } = ref;
    const item = { layout: this, ref, children: [], entries: [], plans: [], shared: undefined };
    switch (source.kind) {
      case "base":
        return this.#base[table].has(name) ? item : undefined;
      case "tree": {
        const { tree, prefix } = source;
        const node = this.#trees[tree].node(prefix);
        return node && {
          ...item,
          ...node,
          plans: node.entries.map(({ key }) => this.#plans.get(key)!),
          shared: prefix === "" && SHARED_ROOTS.includes(tree) ? this.#shared : undefined,
        };
      }
      case "service": {
        const plan = this.#plans.get(source.key);
        const isWanted = plan && this.#ownChains.get(source.key)?.includes(name);
        return isWanted ? { ...item, plans: [plan] } : undefined;
      }
    }
  }

  #treeContent(
    tree: TreeId,
    prefix: string,
    { children, entries, plans, shared }: Omit<ChainItem, "ref">,
  ): ChainContent {
    const rules: string[] = [];
    const owners: (ServicePortKey | undefined)[] = [];
    for (const child of children) {
      rules.push(this.#jump(tree, child, prefix === ""));
      owners.push(undefined);
    }
    let lastPath: string | undefined;
    for (const [index, { key, path }] of entries.entries()) {
      // An endpoint of several ServicePorts needs its hairpin rule once, and may have thousands.
      const isKnown = tree === "hairpin" && path === lastPath;
      lastPath = path;
      if (isKnown) continue;
      for (
        const rule of this.#textOf(plans[index]!).entries.get(entryId(tree, path))?.rules ?? []
      ) {
        if (rules.at(-1) === rule) continue;
        rules.push(rule);
        owners.push(key);
      }
    }
    if (shared) {
      // At the end of a root, after the jumps to its children.
      const { root } = TREES[tree === "services" ? "nodePorts" : "refusedNodePorts"];
      for (const rule of nodePortJumps(root, shared, this.options)) {
        rules.push(ruleText(rule));
        owners.push(undefined);
      }
    }
    return { rules, owners };
  }

  /** The rule that leads to a chain of a tree. */
  #jump(tree: TreeId, prefix: string, isFromRoot: boolean): string {
    const { kind, table }: TreeSpec = TREES[tree];
    // The end of the root is still to come after its children. In filter, where two states are laid
    // over each other for a moment, one must not hide the other.
    const isGoto = !isFromRoot && table === "nat";
    const target = [this.#ref(tree, prefix).name];
    const match = prefixMatch(prefix, kind, this.options.family);
    return ruleText({ ...match, target, ...(isGoto && { isGoto }) });
  }

  #replace(
    key: ServicePortKey,
    old: ServiceRules | undefined,
    rules: ServiceRules | undefined,
  ): void {
    for (const [id, { tree, path, rank }] of old?.entries ?? []) {
      if (!rules?.entries.has(id)) this.#trees[tree].delete({ path, rank });
    }
    for (const { tree, path, rank, rules: { length } } of rules?.entries.values() ?? []) {
      this.#trees[tree].set({ path, rank, key, weight: length });
    }
    const names = [...rules?.chains.keys() ?? []];
    for (const name of [...this.#ownChains.get(key) ?? [], ...names]) {
      this.#dirty.add(keyOf(serviceRef(key, name)));
    }
    if (names.length > 0) this.#ownChains.set(key, names);
    else this.#ownChains.delete(key);
  }

  #textOf(plan: ServicePlan): ServiceRules {
    return this.#texts.getOrInsertComputed(
      plan,
      () => renderService(plan, this.#shared.localTraffic, this.options),
    );
  }

  #ref = (tree: TreeId, prefix: string): ChainRef => treeRef(tree, prefix, this.options.family);
}

/** Rules that are all for one ServicePort, or for all of them. */
function ownedBy(owner: ServicePortKey | undefined, rules: readonly string[] = []): ChainContent {
  return { rules, owners: rules.map(() => owner) };
}

function isSameList(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((each, index) => each === other[index]);
}

/** A chain of this mode. */
interface ChainRef {
  readonly table: IptablesTable;
  readonly name: string;
  readonly source:
    | { readonly kind: "base" }
    | { readonly kind: "tree"; readonly tree: TreeId; readonly prefix: string }
    | { readonly kind: "service"; readonly key: ServicePortKey };
}

/** The content of a chain, as lines without the chain's name. */
interface ChainContent {
  readonly rules: readonly string[];
  /** The ServicePort of each rule; `undefined` for shared rules. */
  readonly owners: readonly (ServicePortKey | undefined)[];
}

/** A chain with its content. */
export type LaidOutChain = ChainContent & ChainRef;

/** Every tree. */
const TREE_IDS = Object.keys(TREES).filter(isTreeId);

function isTreeId(id: string): id is TreeId {
  return id in TREES;
}

/** `table chain`, as a `Map` key. */
export function chainKey(
  { table, name }: { readonly table: string; readonly name: string },
): string {
  return `${table} ${name}`;
}

/** The identity of a chain while its layout lasts; cheaper than its name. */
function keyOf({ table, name, source }: ChainRef): string {
  switch (source.kind) {
    case "base":
      return `${table} ${name}`;
    case "tree":
      return `${source.tree} ${source.prefix}`;
    case "service":
      return `${name} ${source.key}`;
  }
}

/** The opposite of {@linkcode keyOf}. */
function refOf(key: string, family: IpFamily): ChainRef {
  const space = key.indexOf(" ");
  const [head, rest] = [key.slice(0, space), key.slice(space + 1)];
  if (isTreeId(head)) return treeRef(head, rest, family);
  if (head === "nat" || head === "filter" || head === "mangle") {
    return { table: head, name: rest, source: { kind: "base" } };
  }
  return serviceRef(rest as ServicePortKey, head);
}

/** The chain of a tree for a prefix; for the empty one it is the root. */
function treeRef(tree: TreeId, prefix: string, family: IpFamily): ChainRef {
  const { table, root, base, kind } = TREES[tree];
  const name = prefix === "" ? root : prefixChainName(base, prefixLabel(prefix, kind, family));
  return { table, name, source: { kind: "tree", tree, prefix } };
}

/** A chain of a ServicePort's own. */
function serviceRef(key: ServicePortKey, name: string): ChainRef {
  return { table: "nat", name, source: { kind: "service", key } };
}

const LOOPBACK_V6: IpAddress = parseIpAddress("::1");

/**
 * The rules that lead to a chain for node ports: one for every address of the node, or one for each
 * that was chosen. Never for ::1: IPv6 has no route_localnet, so the reply would not come back.
 */
function nodePortJumps(
  chain: string,
  shared: Pick<SharedPlan, "nodePortAddresses">,
  options: IptablesRenderOptions,
): readonly Rule[] {
  const { family, features, localhostNodePorts, nodePortAddresses } = options;
  const rule: Rule = {
    ...(features.comment && {
      comment: "kubernetes service nodeports; NOTE: this must be the last rule in this chain",
    }),
    target: [chain],
  };
  const allowsLoopback = family === "IPv4" && localhostNodePorts;
  if (nodePortAddresses.kind === "cidrs" || !features.addrtype) {
    return shared.nodePortAddresses
      .filter((address) => allowsLoopback || !isLoopback(address))
      .map((value) => ({ ...rule, destination: { value } }));
  }
  const loopback = family === "IPv6" ? LOOPBACK_V6 : LOOPBACK_RANGE;
  return [{
    ...rule,
    ...(!allowsLoopback && { destination: { value: loopback, not: true } }),
    extensions: [["addrtype", "--dst-type", "LOCAL"]],
  }];
}
