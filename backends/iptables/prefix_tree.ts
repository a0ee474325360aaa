/**
 * A tree of chains by prefix. It decides which chain holds an entry, so that a change touches only
 * the chain of the entry and sometimes the one above. Pure except for its own state.
 *
 * A node holds its own entries and child nodes with disjoint prefixes. If it has too many entries,
 * the largest group with the same next digit moves to a new node. Only one group moves at a time,
 * because each move is written to the kernel. A node may therefore hold entries besides its
 * children; sparse groups never get a chain for two or three rules.
 *
 * @module
 */
import {
  byPrefix,
  childFor,
  commonPrefix,
  createNode,
  depthOf,
  type Group,
  heaviestGroup,
  heightOf,
  type MutableNode,
  search,
  type TreeEntry,
  weightOf,
} from "./prefix_tree_nodes.ts";

export type { TreeEntry } from "./prefix_tree_nodes.ts";

/** A chain of the tree. */
export interface TreeNode<E extends TreeEntry> {
  /** The common prefix of all paths below; empty for the root. */
  readonly prefix: string;
  /** Sorted by prefix. */
  readonly children: readonly TreeNode<E>[];
  /** Sorted by path and rank. */
  readonly entries: readonly E[];
}

/** Limits for the size of nodes. */
interface TreeLimits {
  /** Rules in a node, jumps to its children among them, beyond which a group of entries moves out. */
  readonly maxWeight: number;
  /** Entries in a node beyond which a group of them moves out. */
  readonly maxEntries: number;
  /** A node without children that is not heavier may move into the one above… */
  readonly mergeWeight: number;
  /** …if that one is then not heavier than this: far below the maximum, so that nothing flaps. */
  readonly mergedWeight: number;
  /** Levels below the root. There a node grows without bound. */
  readonly maxDepth: number;
}

/**
 * 16 plain entries with two endpoints and a masquerade rule fill a node. nf_tables follows 16 jumps
 * at most (NFT_JUMP_STACK_SIZE): entry point, these 9, firewall, external, endpoints and mark make 14.
 */
export const TREE_LIMITS: TreeLimits = {
  maxWeight: 48,
  maxEntries: 16,
  mergeWeight: 16,
  mergedWeight: 32,
  maxDepth: 9,
};

/** The tree. */
export class PrefixTree<E extends TreeEntry> {
  readonly #limits: TreeLimits;
  readonly #touch: (prefix: string) => void;
  readonly #root: MutableNode<E> = createNode<E>("");
  readonly #nodes = new Map<string, MutableNode<E>>([["", this.#root]]);

  /** Calls `touch` with the prefix of each node that was added, removed or changed. */
  constructor(touch: (prefix: string) => void, limits: TreeLimits = TREE_LIMITS) {
    this.#touch = touch;
    this.#limits = limits;
  }

  /** The node of a prefix, if there is one. The root always is. */
  node(prefix: string): TreeNode<E> | undefined {
    return this.#nodes.get(prefix);
  }

  /** Every prefix that has a node, in no order. */
  prefixes(): Iterable<string> {
    return this.#nodes.keys();
  }

  /** The prefixes of the nodes on a path, from the root on. */
  branch(path: string): readonly string[] {
    const prefixes: string[] = [];
    for (let node: MutableNode<E> | undefined = this.#find(path); node; node = node.parent) {
      prefixes.unshift(node.prefix);
    }
    return prefixes;
  }

  /**
   * Makes nodes in a tree without entries, for a tree of another process: which ones there are depends
   * on the past. Entries that come later find their places among them.
   */
  seed(prefixes: Iterable<string>): void {
    const shortestFirst = [...new Set(prefixes)].sort((one, other) => one.length - other.length);
    for (const prefix of shortestFirst) {
      if (this.#nodes.has(prefix)) continue;
      const parent = this.#find(prefix);
      const node = createNode(prefix, parent);
      parent.children.push(node);
      parent.children.sort(byPrefix);
      this.#nodes.set(prefix, node);
      this.#touch(prefix);
    }
  }

  /** Removes nodes without entries below them. */
  dropEmpty(): void {
    const longestFirst = [...this.#nodes.values()].sort((one, other) =>
      other.prefix.length - one.prefix.length
    );
    for (const node of longestFirst) {
      if (node.entries.length + node.children.length === 0) this.#replace(node, []);
    }
  }

  /** Adds an entry, in place of one with the same path and rank. */
  set(entry: E): void {
    const node = this.#find(entry.path);
    const { index, found } = search(node.entries, entry);
    node.entries.splice(index, found ? 1 : 0, entry);
    node.weight += entry.weight - (found?.weight ?? 0);
    this.#touch(node.prefix);
    if (found !== undefined && found.weight > entry.weight) this.#shrink(node);
    else this.#grow(node);
  }

  /** Removes an entry, if it exists. */
  delete(entry: Pick<TreeEntry, "path" | "rank">): void {
    const node = this.#find(entry.path);
    const { index, found } = search(node.entries, entry);
    if (found === undefined) return;
    node.entries.splice(index, 1);
    node.weight -= found.weight;
    this.#touch(node.prefix);
    this.#shrink(node);
  }

  #find(path: string): MutableNode<E> {
    let node = this.#root;
    for (;;) {
      const next = childFor(node, path);
      if (next === undefined) return node;
      node = next;
    }
  }

  /** Moves groups of entries out while there are too many. */
  #grow(node: MutableNode<E>): void {
    const { maxWeight, maxEntries, maxDepth } = this.#limits;
    while (
      node.weight + node.children.length > maxWeight || node.entries.length > maxEntries
    ) {
      // All entries have the same path, so they cannot be separated.
      if (node.entries.at(-1)?.path === node.prefix) return;
      const group = heaviestGroup(node);
      if (group === undefined) return;
      const { entries, child } = group;
      const prefix = commonPrefix([...entries.map(({ path }) => path), child?.prefix]);
      const height = child === undefined ? 0 : 1 + heightOf(child);
      if (depthOf(node) + 1 + height > maxDepth) return;
      this.#grow(this.#moveOut(node, prefix, group));
    }
  }

  #moveOut(node: MutableNode<E>, prefix: string, group: Group<E>): MutableNode<E> {
    const made = createNode<E>(prefix, node);
    const moved = new Set(group.entries);
    made.entries = [...group.entries];
    made.weight = weightOf(group.entries);
    node.entries = node.entries.filter((entry) => !moved.has(entry));
    node.weight -= made.weight;
    node.children = node.children.filter((other) => other !== group.child);
    if (group.child) {
      group.child.parent = made;
      made.children.push(group.child);
    }
    node.children.push(made);
    node.children.sort(byPrefix);
    this.#nodes.set(prefix, made);
    this.#touch(prefix);
    return made;
  }

  /** Takes nodes away that are no longer worth a chain. */
  #shrink(node: MutableNode<E>): void {
    const { parent } = node;
    if (parent === undefined) return;
    const { maxEntries, maxWeight, mergeWeight, mergedWeight } = this.#limits;
    if (node.children.length > 1) return;
    if (node.children.length === 1) {
      // A level with a single child costs each packet one rule more.
      if (node.entries.length === 0) this.#replace(node, node.children);
      return;
    }
    const merged = parent.weight + node.weight;
    const fits = node.weight <= mergeWeight && merged <= mergedWeight &&
      merged + parent.children.length - 1 <= maxWeight &&
      parent.entries.length + node.entries.length <= maxEntries / 2;
    if (!fits && node.entries.length > 0) return;
    for (const entry of node.entries) {
      parent.entries.splice(search(parent.entries, entry).index, 0, entry);
    }
    parent.weight += node.weight;
    this.#replace(node, []);
    this.#shrink(parent);
  }

  /** Replaces a node by some of its children, or removes it. */
  #replace(node: MutableNode<E>, children: readonly MutableNode<E>[]): void {
    const { parent } = node;
    if (parent === undefined) return;
    for (const child of children) child.parent = parent;
    parent.children = [...parent.children.filter((other) => other !== node), ...children]
      .sort(byPrefix);
    this.#nodes.delete(node.prefix);
    this.#touch(node.prefix);
    this.#touch(parent.prefix);
  }
}
