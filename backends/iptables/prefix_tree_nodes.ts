/** An item that is found under a path. The tree keeps a reference to it. */
export interface TreeEntry {
  readonly path: string;
  /** Orders and distinguishes the entries of one path; the lowest comes first. */
  readonly rank: string;
  /** Rules that it takes. */
  readonly weight: number;
}

/** A node while the tree is made. */
export interface MutableNode<E extends TreeEntry> {
  readonly prefix: string;
  parent: MutableNode<E> | undefined;
  children: MutableNode<E>[];
  entries: E[];
  weight: number;
}

/** A node without anything below it. */
export function createNode<E extends TreeEntry>(
  prefix: string,
  parent?: MutableNode<E>,
): MutableNode<E> {
  return { prefix, parent, children: [], entries: [], weight: 0 };
}

/** Returns the child that a path leads through. Called once for each entry and level. */
export function childFor<E extends TreeEntry>(
  { prefix: { length }, children }: MutableNode<E>,
  path: string,
): MutableNode<E> | undefined {
  const digit = path.charCodeAt(length);
  for (const child of children) {
    if (child.prefix.charCodeAt(length) === digit && path.startsWith(child.prefix)) return child;
  }
  return undefined;
}

/** For sorting. */
export function byPrefix(
  left: { readonly prefix: string },
  right: { readonly prefix: string },
): number {
  return left.prefix < right.prefix ? -1 : 1;
}

/** Returns the position of an entry among sorted ones, and the entry found there. */
export function search<E extends TreeEntry>(
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

/** Entries and children of a node that continue with the same digit. */
export interface Group<E extends TreeEntry> {
  readonly entries: readonly E[];
  readonly child: MutableNode<E> | undefined;
}

/**
 * Returns the group whose entries need the most rules. A single entry only counts if it can join a
 * child, so a node has at most one child for each digit.
 */
export function heaviestGroup<E extends TreeEntry>(node: MutableNode<E>): Group<E> | undefined {
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

/** The rules of some entries. */
export function weightOf(entries: readonly TreeEntry[]): number {
  return entries.reduce((sum, { weight }) => sum + weight, 0);
}

/** Returns the longest common prefix. */
export function commonPrefix(paths: readonly (string | undefined)[]): string {
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

/** Levels above a node. */
export function depthOf(node: MutableNode<TreeEntry>): number {
  let depth = 0;
  for (let above = node.parent; above !== undefined; above = above.parent) depth++;
  return depth;
}

/** Levels below a node. */
export function heightOf(node: MutableNode<TreeEntry>): number {
  return Math.max(0, ...node.children.map((child) => 1 + heightOf(child)));
}
