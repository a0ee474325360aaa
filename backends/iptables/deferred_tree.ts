/**
 * A tree that places its entries on first use: an explanation of one packet needs one or two trees
 * of eight. Pure but for its own state.
 *
 * @module
 */
import { PrefixTree, type TreeEntry, type TreeNode } from "./prefix_tree.ts";

/** The same tree as another one that was given the same calls. */
export class DeferredTree<E extends TreeEntry> extends PrefixTree<E> {
  #waiting: E[] = [];
  #dropsEmpty = false;

  override node(prefix: string): TreeNode<E> | undefined {
    this.#settle();
    return super.node(prefix);
  }

  override prefixes(): Iterable<string> {
    this.#settle();
    return super.prefixes();
  }

  override way(path: string): readonly string[] {
    this.#settle();
    return super.way(path);
  }

  override seed(prefixes: Iterable<string>): void {
    this.#settle();
    super.seed(prefixes);
  }

  override set(entry: E): void {
    // Entries added after nodes were dropped must not be dropped with them.
    if (this.#dropsEmpty) this.#settle();
    this.#waiting.push(entry);
  }

  override delete(entry: Pick<TreeEntry, "path" | "rank">): void {
    this.#settle();
    super.delete(entry);
  }

  override dropEmpty(): void {
    this.#dropsEmpty = true;
  }

  #settle(): void {
    const [waiting, dropsEmpty] = [this.#waiting, this.#dropsEmpty];
    this.#waiting = [];
    this.#dropsEmpty = false;
    for (const entry of waiting) super.set(entry);
    if (dropsEmpty) super.dropEmpty();
  }
}
