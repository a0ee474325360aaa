/**
 * The chains of the trees as text. They depend on a process's history, so other processes need
 * them to compare. Pure.
 *
 * @module
 */
import type { SavedTable, SavedTables } from "../netfilter/iptables/iptables_save.ts";
import { type TreeId, TREES } from "./base_chains.ts";
import { prefixOfRule } from "./packet_path.ts";

/** Every tree. */
export const TREE_IDS = Object.keys(TREES).filter(isTreeId);

/** Whether a text is the name of a tree. */
export function isTreeId(id: string): id is TreeId {
  return id in TREES;
}

/** The origin and purpose of a layout. */
export interface LayoutOrigin {
  /** The chains of another process's layout, as text. @default {[]} */
  readonly shape?: readonly string[];
  /**
   * Whether only a few chains are needed; the text of the others is not prepared. @default {false}
   */
  readonly isForFew?: boolean;
}

/** One value for each tree. */
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

/** The prefixes of one tree; unreadable texts are skipped. */
export function prefixesOfTree(tree: TreeId, shape: readonly string[]): readonly string[] {
  return shape.map((words) => WORDS.exec(words) ?? []).filter(([, id]) => id === tree)
    .map(([, , prefix = ""]) => prefix);
}

/** The texts for prefixes of one tree. */
export function shapeOfTree(tree: TreeId, prefixes: Iterable<string>): readonly string[] {
  return [...prefixes].filter((prefix) => prefix !== "").map((prefix) => `${tree} ${prefix}`);
}

/** Returns the shape of the existing trees, in the form of a layout's shape. */
export function foundShape(tables: SavedTables): readonly string[] {
  const shape: string[] = [];
  for (const [id, { table, root, base, kind }] of Object.entries(TREES)) {
    for (const chain of treeChains(tables[table], { root, base })) {
      for (const rule of tables[table].chains.get(chain) ?? []) {
        if (!/ -[jg] \S+$/.test(rule) || !rule.slice(rule.lastIndexOf(" ") + 1).startsWith(base)) {
          continue;
        }
        const prefix = prefixOfRule(rule, kind);
        if (prefix !== undefined) shape.push(`${id} ${prefix}`);
      }
    }
  }
  return shape;
}

function treeChains(
  { chains }: SavedTable,
  { root, base }: { readonly root: string; readonly base: string },
): readonly string[] {
  return [...chains.keys()].filter((name) => name === root || name.startsWith(base));
}
