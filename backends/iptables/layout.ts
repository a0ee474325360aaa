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
import { type IptablesTable, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { targetOf } from "../netfilter/iptables/iptables_save.ts";
import { baseChains, type TreeId, TREES, type TreeSpec } from "./base_chains.ts";
import {
  type ChainContent,
  chainKey,
  type ChainRef,
  ownedBy,
  serviceRef,
  treeRef,
} from "./chain_ref.ts";
import { endOfRoot } from "./node_port_jumps.ts";
import { prefixMatch } from "./packet_path.ts";
import { DeferredTree, PrefixTree, type TreeEntry } from "./prefix_tree.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import type { ServiceRenderContext } from "./render_service.ts";
import {
  forEachTree,
  type LayoutOrigin,
  prefixesOfTree,
  shapeOfTree,
  TREE_IDS,
} from "./tree_shape.ts";
import {
  entryId,
  type EntryText,
  RenderedServices,
  type ServiceOutline,
  type ServiceText,
} from "./rendered_services.ts";

/** The part of an {@linkcode EntryText} that the trees keep. */
interface LayoutEntry extends TreeEntry {
  readonly key: ServicePortKey;
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
  readonly #rendered = new RenderedServices();
  readonly #isForFew: boolean;
  readonly #dirty = new Map<string, ChainRef>();
  /** Chains of their own, of ServicePorts that have any: most have none. */
  readonly #ownChains = new Map<ServicePortKey, readonly string[]>();
  #shared: SharedPlan;

  constructor(
    shared: SharedPlan,
    options: IptablesRenderOptions,
    { shape = [], isForFew = false, isDeferred = false }: LayoutOrigin = {},
  ) {
    this.options = options;
    this.#shared = shared;
    this.#isForFew = isForFew;
    this.#base = baseChains(options);
    const Tree = isDeferred ? DeferredTree<LayoutEntry> : PrefixTree<LayoutEntry>;
    this.#trees = forEachTree((tree) =>
      new Tree((prefix) => {
        const key = `${tree} ${prefix}`;
        if (!this.#dirty.has(key)) this.#dirty.set(key, this.#ref(tree, prefix));
      })
    );
    for (const tree of TREE_IDS) this.#trees[tree].seed(prefixesOfTree(tree, shape));
    for (const ref of this.lasting()) this.#touch(ref);
  }

  /** The chains of the trees. They depend on earlier changes, and nothing else does. */
  get shape(): readonly string[] {
    return TREE_IDS.flatMap((tree) => shapeOfTree(tree, this.#trees[tree].prefixes()));
  }

  /** Removes chains of a shape that stayed empty. */
  dropEmpty(): void {
    for (const tree of TREE_IDS) this.#trees[tree].dropEmpty();
  }

  /** ServicePorts that cannot be expressed, and those passed to {@linkcode quarantine}. */
  get quarantined(): readonly Quarantined[] {
    return [...this.#quarantined.values()].flat();
  }

  /** The chains that may differ from the applied ones, including chains no longer wanted. */
  get dirty(): readonly ChainRef[] {
    return [...this.#dirty.values()];
  }

  /** The plan by which a ServicePort has rules; `undefined` = it has none. */
  plan(key: ServicePortKey): ServicePlan | undefined {
    return this.#plans.get(key);
  }

  /** Gives a ServicePort the rules of a plan, and takes it out of quarantine. */
  set(plan: ServicePlan): void {
    const previous = this.#plans.get(plan.key);
    if (previous === plan) return;
    const old = previous && this.#outlineOf(previous);
    this.#plans.set(plan.key, plan);
    const rules = this.#isForFew ? this.#outlineOf(plan) : this.#textOf(plan);
    this.#replace(plan.key, old, rules);
    if (rules.quarantined.length === 0) this.#quarantined.delete(plan.key);
    else this.#quarantined.set(plan.key, rules.quarantined);
  }

  /** Removes the rules of a ServicePort. */
  delete(key: ServicePortKey): void {
    const plan = this.#plans.get(key);
    this.#quarantined.delete(key);
    if (plan === undefined) return;
    this.#replace(key, this.#outlineOf(plan), undefined);
    this.#plans.delete(key);
    this.#rendered.forget(key);
  }

  /** Removes the rules of a ServicePort that the kernel refused, until it is set again. */
  quarantine(item: Quarantined): void {
    this.delete(item.key);
    this.#quarantined.set(item.key, [item]);
  }

  /** The addresses of the node may have changed; the detector of local traffic never does. */
  setShared(shared: SharedPlan): void {
    this.#shared = shared;
    for (const tree of SHARED_ROOTS) this.#touch(this.#ref(tree, ""));
  }

  /** Like {@linkcode touch}, for every desired chain. */
  touchAll(): void {
    this.touch(this.chains());
  }

  /** Marks chains for comparison because their applied state is no longer known. */
  touch(chains: Iterable<ChainRef>): void {
    for (const ref of chains) this.#touch(ref);
  }

  /** Records that the desired state was applied. */
  settle(): void {
    this.#dirty.clear();
    this.#rendered.clear();
  }

  /** Every desired chain, in no order. Walks over all of them. */
  *chains(): Generator<ChainRef> {
    yield* this.lasting();
    for (const tree of TREE_IDS) {
      for (const prefix of this.#trees[tree].prefixes()) {
        if (prefix !== "") yield this.#ref(tree, prefix);
      }
    }
    for (const [key, names] of this.#ownChains) {
      for (const name of names) yield serviceRef(key, name);
    }
  }

  /** The content of a chain; `undefined` = it is not wanted. */
  content({ table, name, source }: ChainRef): ChainContent | undefined {
    switch (source.kind) {
      case "base": {
        const rules = this.#base[table].get(name);
        return rules && ownedBy(rules.map(ruleText), undefined);
      }
      case "tree":
        return this.#treeContent(source.tree, source.prefix);
      case "service": {
        const plan = this.#plans.get(source.key);
        const chain = plan && this.#textOf(plan).chains.find((chain) => chain.name === name);
        return chain && ownedBy(chain.rules, source.key);
      }
    }
  }

  /** The chains of a tree that a packet of this path passes, from its root on. */
  branch(tree: TreeId, path: string): readonly ChainRef[] {
    return this.#trees[tree].branch(path).map((prefix) => this.#ref(tree, prefix));
  }

  /**
   * The rules of a ServicePort for some paths: the jumps that lead to the chain of a path, its rules
   * there, and its own chains in the order in which rules lead to them.
   */
  *rulesFor(service: ServicePlan, paths: readonly string[]): Generator<ServicePortRules> {
    const { entries, chains } = this.#textOf(service);
    const left = new Map(chains.map((chain) => [chain.name, chain]));
    function* chainsOf(rules: readonly string[]): Generator<ServicePortRules> {
      for (const rule of rules) {
        const chain = left.get(targetOf(rule) ?? "");
        if (chain === undefined) continue;
        left.delete(chain.name);
        yield { table: "nat", chain: chain.name, rules: chain.rules };
        yield* chainsOf(chain.rules);
      }
    }
    for (const { tree, path, rules } of entries) {
      if (!paths.includes(path) || rules.length === 0) continue;
      const { table, root }: TreeSpec = TREES[tree];
      let chain = root;
      for (const { name, source } of this.branch(tree, path)) {
        if (source.kind !== "tree" || source.prefix === "") continue;
        const jump = this.#jump(tree, { prefix: source.prefix, isFromRoot: chain === root });
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

  #treeContent(tree: TreeId, prefix: string): ChainContent | undefined {
    const node = this.#trees[tree].node(prefix);
    if (node === undefined) return undefined;
    const rules: string[] = [];
    const owners: (ServicePortKey | undefined)[] = [];
    for (const child of node.children) {
      rules.push(this.#jump(tree, { prefix: child.prefix, isFromRoot: prefix === "" }));
      owners.push(undefined);
    }
    let lastPath: string | undefined;
    for (const { key, path, rank } of node.entries) {
      // An endpoint of several ServicePorts needs its hairpin rule once, and may have thousands.
      const isKnown = tree === "hairpin" && path === lastPath;
      lastPath = path;
      if (isKnown) continue;
      const entry = this.#entry(key, { tree, path, rank });
      for (const rule of entry?.rules ?? []) {
        if (rules.at(-1) === rule) continue;
        rules.push(rule);
        owners.push(key);
      }
    }
    for (const rule of prefix === "" ? endOfRoot(tree, this.#shared, this.options) : []) {
      rules.push(ruleText(rule));
      owners.push(undefined);
    }
    return { rules, owners };
  }

  /** The rule that leads to a chain of a tree. */
  #jump(
    tree: TreeId,
    { prefix, isFromRoot }: { readonly prefix: string; readonly isFromRoot: boolean },
  ): string {
    const { kind, table }: TreeSpec = TREES[tree];
    // The end of the root is still to come after its children. In filter, where two states are laid
    // over each other for a moment, one must not hide the other.
    const isGoto = !isFromRoot && table === "nat";
    const target = [this.#ref(tree, prefix).name];
    const match = prefixMatch(prefix, kind, this.options.family);
    return ruleText({ ...match, target, ...(isGoto && { isGoto }) });
  }

  #entry(
    key: ServicePortKey,
    id: Pick<EntryText, "path" | "rank" | "tree">,
  ): EntryText | undefined {
    const plan = this.#plans.get(key);
    return plan && this.#rendered.entryOf(plan, id, this.#context);
  }

  #replace(
    key: ServicePortKey,
    old: ServiceOutline | undefined,
    rules: ServiceOutline | undefined,
  ): void {
    const wanted = rules?.entries ?? [];
    const stays = new Set(old && wanted.map(entryId));
    for (const entry of old?.entries ?? []) {
      const { tree, path, rank } = entry;
      if (!stays.has(entryId(entry))) this.#trees[tree].delete({ path, rank });
    }
    for (const { tree, path, rank, rules } of wanted) {
      this.#trees[tree].set({ path, rank, key, weight: rules.length });
    }
    const names = rules?.chains.map(({ name }) => name) ?? [];
    for (const name of [...this.#ownChains.get(key) ?? [], ...names]) {
      this.#touch(serviceRef(key, name));
    }
    if (names.length > 0) this.#ownChains.set(key, names);
    else this.#ownChains.delete(key);
  }

  #textOf(plan: ServicePlan): ServiceText {
    return this.#rendered.textOf(plan, this.#context);
  }

  #outlineOf(plan: ServicePlan): ServiceOutline {
    return this.#rendered.outlineOf(plan, this.#context);
  }

  get #context(): ServiceRenderContext {
    return { localTraffic: this.#shared.localTraffic, options: this.options };
  }

  #touch(ref: ChainRef): void {
    const { source } = ref;
    const key = source.kind === "tree" ? `${source.tree} ${source.prefix}` : chainKey(ref);
    this.#dirty.set(key, ref);
  }

  #ref = (tree: TreeId, prefix: string): ChainRef => treeRef(tree, prefix, this.options.family);
}
