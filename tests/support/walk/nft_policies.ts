/**
 * Returns the effect of the table on a connection, by the same walk that follows Services. Pure.
 *
 * @module
 */
import type { Connection } from "../../../lib/policy/judge_connection.ts";
import { type WalkedNftHost, type WalkedNftTable, walkNft } from "./nft_walk.ts";
import type { PolicyWalk } from "./walked_packet.ts";
import type { WantedTable } from "../../../backends/policy/nftables/wanted_table.ts";

type WalkOptions = Pick<WalkedNftHost, "onRule">;

/** Walks the first packet of a connection through the hook of forwarded packets. */
export function walkPolicies(
  table: WantedTable,
  connection: Connection,
  options: WalkOptions = {},
): PolicyWalk {
  return walkConnection(walkedTable(table), connection, options);
}

/** As {@linkcode walkPolicies}, through rules from anywhere. */
export function walkConnection(
  table: WalkedNftTable,
  { from, to, transport, isFromOwnNode = false }: Connection,
  options: WalkOptions = {},
): PolicyWalk {
  const { protocol, port } = transport ?? { protocol: "ICMP", port: 0 } as const;
  const packet = {
    ...{ source: from, destination: to, protocol, port },
    ...(!isFromOwnNode && { inInterface: "" }),
  };
  const isLocal = (address: string) => isFromOwnNode && address === from;
  const [outcome] = walkNft(table, packet, { ...options, isLocal, affinity: new Map() });
  if (outcome === undefined) throw new Error(`Cannot walk from ${from} to ${to}: no outcome`);
  return { verdict: outcome.verdict, path: outcome.path };
}

function walkedTable({ containers, chains, elements }: WantedTable): WalkedNftTable {
  const hooks = new Map<string, string>();
  for (const { name, hook } of chains.values()) if (hook !== undefined) hooks.set(name, hook);
  return {
    chains: new Map([...chains].map(([name, { rules }]) => [name, rules])),
    hooks,
    elements: new Map(
      [...containers.keys()].map((name) => {
        const keys = [...elements.get(name) ?? []];
        return [name, new Map(keys.map(([key, { value = "" }]) => [key, value]))];
      }),
    ),
  };
}
