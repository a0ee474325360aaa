/**
 * Returns the effect of the table on a connection, by the same walk that follows Services. Pure.
 */
import type { Connection } from "../../../lib/policy/judge_connection.ts";
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { renderPolicies } from "../../../backends/policy/nftables/layout.ts";
import { FakeNft, type FakeNftTable } from "../fakes/fake_nft.ts";
import { type WalkedNftHost, type WalkedNftTable, walkNft } from "./nft_walk.ts";
import type { PolicyWalk } from "./walked_packet.ts";

type WalkOptions = Pick<WalkedNftHost, "onRule">;

/** The table of a new machine after the rendered plan. */
export function renderedPolicyTable(plan: PolicyPlan): FakeNftTable {
  const tool = new FakeNft();
  tool.run([...renderPolicies(plan)].join(""));
  return tool.table(tool.tables[0]!);
}

/** Walks the first packet of a connection through the hook of forwarded packets. */
export function walkPolicies(
  plan: PolicyPlan,
  connection: Connection,
  options: WalkOptions = {},
): PolicyWalk {
  return walkConnection(renderedPolicyTable(plan), connection, options);
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
