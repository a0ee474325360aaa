import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { prefixChainName } from "../netfilter/names.ts";
import { type TreeId, TREES } from "./base_chains.ts";
import { prefixLabel } from "./packet_path.ts";

/** A chain of this mode. */
export interface ChainRef {
  readonly table: IptablesTable;
  readonly name: string;
  readonly source:
    | { readonly kind: "base" }
    | { readonly kind: "tree"; readonly tree: TreeId; readonly prefix: string }
    | { readonly kind: "service"; readonly key: ServicePortKey };
}

/** The content of a chain, as lines without the chain's name. */
export interface ChainContent {
  readonly rules: readonly string[];
  /** The ServicePort of each rule; `undefined` for shared rules. */
  readonly owners: readonly (ServicePortKey | undefined)[];
}

/** Every tree. */
export const TREE_IDS = Object.keys(TREES).filter(isTreeId);

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
export function keyOf({ table, name, source }: ChainRef): string {
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
export function refOf(key: string, family: IpFamily): ChainRef {
  const space = key.indexOf(" ");
  const [head, rest] = [key.slice(0, space), key.slice(space + 1)];
  if (isTreeId(head)) return treeRef(head, rest, family);
  if (head === "nat" || head === "filter" || head === "mangle") {
    return { table: head, name: rest, source: { kind: "base" } };
  }
  return serviceRef(rest as ServicePortKey, head);
}

/** The chain of a tree for a prefix; for the empty one it is the root. */
export function treeRef(tree: TreeId, prefix: string, family: IpFamily): ChainRef {
  const { table, root, base, kind } = TREES[tree];
  const name = prefix === "" ? root : prefixChainName(base, prefixLabel(prefix, kind, family));
  return { table, name, source: { kind: "tree", tree, prefix } };
}

/** A chain of a ServicePort's own. */
export function serviceRef(key: ServicePortKey, name: string): ChainRef {
  return { table: "nat", name, source: { kind: "service", key } };
}
