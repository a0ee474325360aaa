/**
 * A tree of chains by prefix: which entries stand in which chain, kept so that a change touches the
 * chain that it belongs to and, now and then, the one above. Pure but for its own state.
 *
 * A node holds entries of its own and nodes below it whose prefixes exclude each other. When it has
 * too many entries, the largest group that goes on with the same digit moves to a node of its own:
 * one group at a time, since each move has to be written to the kernel. So a node may hold some
 * entries beside its children; sparse groups never get a chain for two or three rules.
 *
 * @module
 */

/** Something to be found under a path. Kept for as long as it is in the tree. */
export interface TreeEntry {
  readonly path: string;
  /** Decides among entries of one path, and tells them apart: the lower one comes first. */
  readonly rank: string;
  /** Rules that it takes. */
  readonly weight: number;
}

/** A chain of the tree. */
export interface TreeNode<E extends TreeEntry> {
  /** What the paths of everything below it begin with; empty for the root. */
  readonly prefix: string;
  /** By prefix. */
  readonly children: readonly TreeNode<E>[];
  /** By path and rank. */
  readonly entries: readonly E[];
}

/** How large nodes get. */
export interface TreeLimits {
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

interface MutableNode<E extends TreeEntry> {
  readonly prefix: string;
  parent: MutableNode<E> | undefined;
  children: MutableNode<E>[];
  entries: E[];
  weight: number;
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

  /** `touch` is told the prefix of each node whose content changed, came or went. */
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

  /** Takes an entry away, if it is there. */
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
      const next = node.children.find(({ prefix }) => path.startsWith(prefix));
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
      // All have one path: nothing tells them apart, however many there are.
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
    const { maxEntries, mergeWeight, mergedWeight } = this.#limits;
    if (node.children.length > 1) return;
    if (node.children.length === 1) {
      // A level with one child and nothing else: one rule less for each packet without it.
      if (node.entries.length === 0) this.#replace(node, node.children);
      return;
    }
    const fits = node.weight <= mergeWeight && parent.weight + node.weight <= mergedWeight &&
      parent.entries.length + node.entries.length <= maxEntries / 2;
    if (!fits && node.entries.length > 0) return;
    for (const entry of node.entries) {
      parent.entries.splice(search(parent.entries, entry).index, 0, entry);
    }
    parent.weight += node.weight;
    this.#replace(node, []);
    this.#shrink(parent);
  }

  /** Puts some of its children, or nothing, in place of a node. */
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

function createNode<E extends TreeEntry>(prefix: string, parent?: MutableNode<E>): MutableNode<E> {
  return { prefix, parent, children: [], entries: [], weight: 0 };
}

function byPrefix(left: { readonly prefix: string }, right: { readonly prefix: string }): number {
  return left.prefix < right.prefix ? -1 : 1;
}

/** The place of an entry among sorted ones, and what is there. */
function search<E extends TreeEntry>(
  entries: readonly E[],
  { path, rank }: Pick<TreeEntry, "path" | "rank">,
): { readonly index: number; readonly found: E | undefined } {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const other = entries[middle];
    const isBefore = other !== undefined &&
      (other.path < path || (other.path === path && other.rank < rank));
    if (isBefore) low = middle + 1;
    else high = middle;
  }
  const at = entries[low];
  return { index: low, found: at?.path === path && at.rank === rank ? at : undefined };
}

/** What of a node goes on with the same digit. */
interface Group<E extends TreeEntry> {
  readonly entries: readonly E[];
  readonly child: MutableNode<E> | undefined;
}

/**
 * The group whose entries take the most rules. A single entry is none, unless it may join a child:
 * so no digit ever has two children, and a node no more than one for each.
 */
function heaviestGroup<E extends TreeEntry>(node: MutableNode<E>): Group<E> | undefined {
  const { length } = node.prefix;
  const groups = Map.groupBy(node.entries, ({ path }) => path[length] ?? "");
  groups.delete("");
  let heaviest: Group<E> | undefined;
  for (const [digit, entries] of groups) {
    const child = node.children.find(({ prefix }) => prefix[length] === digit);
    if (entries.length < 2 && child === undefined) continue;
    if (heaviest === undefined || weightOf(entries) > weightOf(heaviest.entries)) {
      heaviest = { entries, child };
    }
  }
  return heaviest;
}

function weightOf(entries: readonly TreeEntry[]): number {
  return entries.reduce((sum, { weight }) => sum + weight, 0);
}

/** What all of them begin with. */
function commonPrefix(paths: readonly (string | undefined)[]): string {
  const [first = ""] = paths;
  let { length } = first;
  for (const path of paths) {
    if (path === undefined) continue;
    let same = 0;
    while (same < length && path[same] === first[same]) same++;
    length = same;
  }
  return first.slice(0, length);
}

function depthOf(node: MutableNode<TreeEntry>): number {
  let depth = 0;
  for (let above = node.parent; above !== undefined; above = above.parent) depth++;
  return depth;
}

function heightOf(node: MutableNode<TreeEntry>): number {
  return Math.max(0, ...node.children.map((child) => 1 + heightOf(child)));
}
