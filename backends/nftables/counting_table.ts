/**
 * The table that counts the traffic of each Service, with `--service-counters`.
 *
 * A separate table keeps forwarding unchanged, whether traffic is counted or not, and independent
 * of failures here. The hooks are of type filter to see every packet; those of type nat only see
 * the first one of a connection. They come after all DNAT, so that the first packet is already
 * known as one of a Service.
 *
 * ```
 *  arrives, but not by lo ─► arriving ─┬─ ct status dnat ─► count ─► service-ips, node-ports
 *  is sent ────────────────► sent ─────┘
 * ```
 *
 * A packet is looked up by the original destination of its connection, which conntrack knows in
 * both directions. Packets from the node to itself pass both hooks, so those arriving by `lo` are
 * left out. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { NftChain, NftContainer, NftTableSpec } from "../netfilter/nft/nft_objects.ts";
import { ElementLines, NftTransaction } from "../netfilter/nft/nft_transaction.ts";
import type { NftCounter, TableReading } from "../netfilter/nft/table_listing.ts";
import { type EntryId, keyOfEntry } from "./entry_id.ts";
import { EXPRESSIONS } from "./expressions.ts";

/** Its sets; each element has a counter. */
const COUNTING_SETS = ["service-ips", "node-ports"] as const;

/** One of {@linkcode COUNTING_SETS}. */
type CountingSet = typeof COUNTING_SETS[number];

/** The direction of a packet, as conntrack defines it. */
export const DIRECTIONS = ["original", "reply"] as const;

/** The counts of one element. */
export interface CountedElement extends NftCounter {
  readonly id: EntryId;
  readonly direction: typeof DIRECTIONS[number];
}

/** The objects to write. */
interface CountingChanges {
  /** Whether to write the table with its sets, chains and rules. @default {false} */
  readonly declares?: boolean;
  /** Whether to empty the sets first, so that all counters start at 0. @default {false} */
  readonly empties?: boolean;
  readonly removed?: Iterable<EntryId>;
  readonly added?: Iterable<EntryId>;
}

const PROTOCOLS = "meta l4proto { tcp, udp, sctp }";
const PORT = "meta l4proto . ct original proto-dst . ct direction";
const COUNT = "ct status dnat goto count";
/** After all DNAT of the usual priority, before filters of the usual one. */
const PRIORITY = -80;
/** Elements between two pauses: well under a millisecond. */
const SLICE_SIZE = 512;

/** The table of one family. */
export function countingTable(family: IpFamily): NftTableSpec<CountingSet> {
  const { address, table } = EXPRESSIONS[family];
  const port = "inet_proto . inet_service . ct_dir";
  const set = (type: string): NftContainer => ({
    kind: "set",
    declaration: `type ${type} ; counter`,
  });
  return {
    family: table,
    name: "kube-relay-counters",
    containers: new Map([["service-ips", set(`${address} . ${port}`)], ["node-ports", set(port)]]),
  };
}

function countingChains(family: IpFamily): readonly NftChain[] {
  const { table } = EXPRESSIONS[family];
  const hookAt = (hook: string) => `type filter hook ${hook} priority ${PRIORITY}`;
  // Without the protocols first, nft 1.0.6 takes a port of conntrack into no key.
  const vip = `${PROTOCOLS} ct original ${table} daddr . ${PORT}`;
  return [
    {
      name: "count",
      rules: [`${vip} @service-ips accept`, `${PROTOCOLS} ${PORT} @node-ports accept`],
    },
    { name: "arriving", hook: hookAt("prerouting"), rules: [`iif != "lo" ${COUNT}`] },
    { name: "sent", hook: hookAt("output"), rules: [COUNT] },
  ];
}

/** Whether an entry receives packets and so has counters. */
export function isCounted(id: EntryId): boolean {
  return setOf(id) !== undefined;
}

/** Makes a transaction in short steps; it is empty if nothing differs. */
export function* countingSteps(
  family: IpFamily,
  { declares = false, empties = false, removed = [], added = [] }: CountingChanges,
): Generator<void, NftTransaction> {
  return yield* NftTransaction.steps(countingTable(family), {
    declared: declares ? COUNTING_SETS : undefined,
    chains: declares ? countingChains(family) : [],
    emptied: empties ? COUNTING_SETS : [],
    removed: yield* elementSteps("delete", removed),
    added: yield* elementSteps("add", added),
  });
}

/** Extracts the counts of each element from a read of the table, in short steps. */
export function* countedElements(
  { counters }: TableReading,
): Generator<void, readonly CountedElement[]> {
  const elements: CountedElement[] = [];
  for (const [set, counted] of counters) {
    for (const [key, counter] of counted) {
      if (elements.length % SLICE_SIZE === SLICE_SIZE - 1) yield;
      const id = `${set} ${key.slice(0, key.lastIndexOf(" . "))}` as EntryId;
      const direction = key.endsWith(" reply") ? "reply" : "original";
      elements.push({ id, direction, ...counter });
    }
  }
  return elements;
}

/**
 * The elements of entries: one for each direction. They have no owner, because several Services may
 * share a frontend.
 */
function* elementSteps(
  verb: "add" | "delete",
  ids: Iterable<EntryId>,
): Generator<void, ReadonlyMap<CountingSet, ElementLines<string>>> {
  const elements = new Map(
    COUNTING_SETS.map((name) => [name, new ElementLines<string>(verb)] as const),
  );
  let seen = 0;
  for (const id of ids) {
    if (++seen % SLICE_SIZE === 0) yield;
    const set = setOf(id);
    const lines = set && elements.get(set);
    for (const direction of DIRECTIONS) {
      lines?.add(`${keyOfEntry(id)} . ${direction}`, undefined, undefined);
    }
  }
  return elements;
}

function setOf(id: EntryId): CountingSet | undefined {
  return COUNTING_SETS.find((name) => id.startsWith(`${name} `));
}
