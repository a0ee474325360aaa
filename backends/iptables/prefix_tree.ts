/**
 * A tree of chains by prefix. It says which chain holds an entry, so that a change touches only the
 * chain of the entry and sometimes the one above. It depends on the entries alone, not on what was there
 * before. Pure except for its own state.
 *
 * The entries of a node that continue with the same digit are a group. One that needs many rules has a
 * node of its own, whose prefix is all that its paths have in common; a node holds the entries of the
 * other groups itself. The entries are one sorted list, in which those of a node follow each other.
 *
 * @module
 */

/** An item that is found under a path. The tree keeps a reference to it. */
export interface TreeEntry {
  readonly path: string;
  /** Orders and distinguishes the entries of one path; the lowest comes first. */
  readonly rank: string;
  /** Rules that it takes. */
  readonly weight: number;
}

/** A chain of the tree. */
interface TreeNode<E extends TreeEntry> {
  /** The prefixes of the nodes below it, sorted. */
  readonly children: readonly string[];
  /** Sorted by path and rank. */
  readonly entries: readonly E[];
}

/**
 * Rules beyond which a group has a chain of its own: those of four plain Services with two endpoints and
 * a masquerade rule. So a chain has some 50 rules at most, as a node has four groups.
 */
const MAX_GROUP_WEIGHT = 12;
/**
 * Levels below the root. There a node grows without bound: nf_tables follows 16 jumps at most
 * (NFT_JUMP_STACK_SIZE): entry point, these 9, firewall, external, endpoints and mark make 14.
 */
const MAX_DEPTH = 9;
/** Comes after each digit and letter of a path. */
const LAST = "~";

/** Entries that follow each other. */
interface Range {
  readonly low: number;
  readonly high: number;
}

/** The tree. */
export class PrefixTree<E extends TreeEntry> {
  readonly #touch: (prefix: string) => void;
  readonly #entries: E[] = [];
  #isTracked = false;

  /** Calls `touch` with the prefix of each node that was added, removed or changed since {@linkcode track}. */
  constructor(touch: (prefix: string) => void) {
    this.#touch = touch;
  }

  /** The node of a prefix, if there is one. The root always is. */
  node(prefix: string): TreeNode<E> | undefined {
    const branch = this.branch(prefix);
    if (branch.at(-1) !== prefix) return undefined;
    const { own, children } = this.#groups(prefix, this.#range(prefix), branch.length);
    return {
      children: children.map(({ prefix }) => prefix),
      entries: own.flatMap(({ low, high }) => this.#entries.slice(low, high)),
    };
  }

  /** Every prefix that has a node, from the root on. */
  prefixes(): Generator<string> {
    return this.#prefixesBelow("", { low: 0, high: this.#entries.length }, 1);
  }

  *#prefixesBelow(prefix: string, range: Range, level: number): Generator<string> {
    yield prefix;
    for (const { prefix: child, ...below } of this.#groups(prefix, range, level).children) {
      yield* this.#prefixesBelow(child, below, level + 1);
    }
  }

  /** The prefixes of the nodes on a path, from the root on. */
  branch(path: string): readonly string[] {
    const prefixes = [""];
    let range: Range = { low: 0, high: this.#entries.length };
    for (let prefix = ""; prefixes.length <= MAX_DEPTH; prefixes.push(prefix)) {
      const start = path.slice(0, prefix.length + 1);
      if (start.length === prefix.length) break;
      range = this.#range(start, range);
      if (!this.#isHeavy(range)) break;
      prefix = this.#prefixOf(range);
      if (!path.startsWith(prefix)) break;
    }
    return prefixes;
  }

  /** Adds an entry, in place of one with the same path and rank. */
  set(entry: E): void {
    this.#change(entry, [entry]);
  }

  /** Removes an entry, if it exists. */
  delete(entry: Pick<TreeEntry, "path" | "rank">): void {
    this.#change(entry, []);
  }

  /** Has changes touched from now on. */
  track(): void {
    this.#isTracked = true;
  }

  /** Puts some in place of an entry. */
  #change(entry: Pick<TreeEntry, "path" | "rank">, by: readonly E[]): void {
    const { path } = entry;
    const index = this.#indexOf(path, entry.rank);
    const at = this.#entries[index];
    const isThere = at !== undefined && !isBefore(entry, at);
    if (!isThere && by.length === 0) return;
    const before = this.#isTracked ? this.branch(path) : [];
    this.#entries.splice(index, isThere ? 1 : 0, ...by);
    if (!this.#isTracked) return;
    const after = this.branch(path);
    const changed = new Set(before).symmetricDifference(new Set(after));
    for (const prefix of [...changed, before.at(-1)!, after.at(-1)!]) this.#touch(prefix);
    if (changed.size === 0) return;
    // Those above one that came or went.
    for (const prefix of after) this.#touch(prefix);
    // Those below it are a level higher or lower now: some at the limit came or went.
    for (const prefix of changed) {
      this.#touchBelow(prefix, this.#range(prefix), this.branch(prefix).length);
    }
  }

  /** Touches the nodes at the depth limit below a prefix, and those that may have been there. */
  #touchBelow(prefix: string, range: Range, level: number): void {
    if (level >= MAX_DEPTH - 1) this.#touch(prefix);
    if (level > MAX_DEPTH + 2) return;
    // As if there were no limit.
    for (const { prefix: child, ...below } of this.#groups(prefix, range, 1).children) {
      this.#touchBelow(child, below, level + 1);
    }
  }

  /** The groups of a node: those that have a node of their own, and the others. */
  #groups(prefix: string, { low, high }: Range, level: number) {
    const own: Range[] = [];
    const children: (Range & { readonly prefix: string })[] = [];
    for (let next = low; next < high;) {
      const start = this.#entries[next]!.path.slice(0, prefix.length + 1);
      const group = start === prefix
        ? { low: next, high: next + 1 }
        : { low: next, high: this.#indexOf(start + LAST, "", { low: next, high }) };
      const isNode = start !== prefix && level <= MAX_DEPTH && this.#isHeavy(group);
      if (isNode) children.push({ ...group, prefix: this.#prefixOf(group) });
      else own.push(group);
      next = group.high;
    }
    return { own, children };
  }

  #isHeavy({ low, high }: Range): boolean {
    if (high - low < 2) return false;
    let weight = 0;
    for (let index = low; index < high && weight <= MAX_GROUP_WEIGHT; index++) {
      weight += this.#entries[index]!.weight;
    }
    return weight > MAX_GROUP_WEIGHT;
  }

  /** All that the paths have in common: those between the first and the last one have it too. */
  #prefixOf({ low, high }: Range): string {
    const [first, last] = [this.#entries[low]!.path, this.#entries[high - 1]!.path];
    let length = 0;
    while (length < first.length && first[length] === last[length]) length++;
    return first.slice(0, length);
  }

  #range(prefix: string, within?: Range): Range {
    const low = this.#indexOf(prefix, "", within);
    const high = within?.high ?? this.#entries.length;
    return { low, high: this.#indexOf(prefix + LAST, "", { low, high }) };
  }

  /** The index of the first entry that does not come before such a one. */
  #indexOf(
    path: string,
    rank: string,
    { low, high }: Range = { low: 0, high: this.#entries.length },
  ): number {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(this.#entries[middle]!, { path, rank })) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function isBefore(
  one: Pick<TreeEntry, "path" | "rank">,
  other: Pick<TreeEntry, "path" | "rank">,
): boolean {
  return one.path < other.path || (one.path === other.path && one.rank < other.rank);
}
