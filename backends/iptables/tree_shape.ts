/**
 * Which chains the trees have, as words: that depends on the past of a process, so another one has to
 * be told. Pure.
 *
 * @module
 */
import { type TreeId, TREES } from "./base_chains.ts";

/** Every tree. */
export const TREE_IDS = Object.keys(TREES).filter((id): id is TreeId => id in TREES);

/** Where a layout comes from, and what for. */
export interface LayoutOrigin {
  /** Which chains there are, as words: that of a layout of another process. @default {[]} */
  readonly shape?: readonly string[];
  /** Whether a few chains are asked for: the text of the others is not made ahead. @default {false} */
  readonly isForFew?: boolean;
  /** Whether a few trees are: the others do not grow, and chains come in another order. @default {false} */
  readonly isDeferred?: boolean;
}

/** One thing for each tree. */
export function forEachTree<T>(make: (tree: TreeId) => T): Readonly<Record<TreeId, T>> {
  return {
    services: make("services"),
    nodePorts: make("nodePorts"),
    hairpin: make("hairpin"),
    refused: make("refused"),
    refusedExternal: make("refusedExternal"),
    refusedNodePorts: make("refusedNodePorts"),
    firewall: make("firewall"),
    healthChecks: make("healthChecks"),
  };
}

/** A tree and a path, as digits of two bits with the letter of a protocol among them. */
const WORDS = /^(\w+) ([0-3]*(?:[tsu][0-3]*)?)$/;

/** The prefixes of one tree; what is no such word is passed over. */
export function prefixesOfTree(tree: TreeId, shape: readonly string[]): readonly string[] {
  return shape.map((words) => WORDS.exec(words) ?? []).filter(([, id]) => id === tree)
    .map(([, , prefix = ""]) => prefix);
}

/** The words for some prefixes of one tree. */
export function shapeOfTree(tree: TreeId, prefixes: Iterable<string>): readonly string[] {
  return [...prefixes].filter((prefix) => prefix !== "").map((prefix) => `${tree} ${prefix}`);
}
