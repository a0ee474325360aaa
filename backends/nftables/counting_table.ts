/**
 * The table that counts what goes through each Service, with `--service-counters`.
 *
 * A table of its own: what forwards stays as it is, whether anybody counts or not, and what goes wrong
 * here keeps no packet from its way. The hooks are of type filter, as every packet is to be counted and
 * those of type nat see the first one of a connection only. They come after all DNAT, so that
 * the first packet is known as one of a Service, too.
 *
 * ```
 *  arrives, but not by lo ─► arriving ─┬─ ct status dnat ─► count ─► service-ips, node-ports
 *  is sent ────────────────► sent ─────┘
 * ```
 *
 * A packet is looked up by what its connection was first sent to, which conntrack knows in both
 * directions. What the node sends to itself passes both hooks: so what arrives by `lo` is left out. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { NftChain, NftContainer, NftTableSpec } from "../netfilter/nft/nft_objects.ts";
import { type ElementChange, NftTransaction } from "../netfilter/nft/nft_transaction.ts";
import type { NftCounter, TableReading } from "../netfilter/nft/table_listing.ts";
import { type EntryId, keyOfEntry } from "./entry_id.ts";
import { EXPRESSIONS } from "./expressions.ts";

/** Its sets; each element has a counter. */
const COUNTING_SETS = ["service-ips", "node-ports"] as const;

/** One of {@linkcode COUNTING_SETS}. */
type CountingSet = typeof COUNTING_SETS[number];

/** Where a packet goes, as conntrack says it. */
export const DIRECTIONS = ["original", "reply"] as const;

/** What one element has counted. */
export interface CountedElement extends NftCounter {
  readonly id: EntryId;
  readonly direction: typeof DIRECTIONS[number];
}

/** One that is added or deleted; a front may be of several Services, and so is of none. */
type CountingElement = ElementChange<string, CountingSet>;

/** What is written. */
interface CountingChanges {
  /** Whether the table with its sets, chains and rules is written. @default {false} */
  readonly declares?: boolean;
  /** Whether the sets are emptied first; all counters begin at 0. @default {false} */
  readonly empties?: boolean;
  readonly removed?: Iterable<EntryId>;
  readonly added?: Iterable<EntryId>;
}

const PROTOCOLS = "meta l4proto { tcp, udp, sctp }";
const PORT = "meta l4proto . ct original proto-dst . ct direction";
const COUNT = "ct status dnat goto count";
/** After all DNAT of the usual priority, before those who drop at the usual one. */
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

/** Whether an entry is one that packets are sent to, and so has counters. */
export function isCounted(id: EntryId): boolean {
  return setOf(id) !== undefined;
}

/** Makes a transaction in short steps; an empty one where nothing is to be done. */
export function* countingSteps(
  family: IpFamily,
  { declares = false, empties = false, removed = [], added = [] }: CountingChanges,
): Generator<void, NftTransaction> {
  return yield* NftTransaction.steps(countingTable(family), {
    declared: declares ? COUNTING_SETS : undefined,
    chains: declares ? countingChains(family) : [],
    emptied: empties ? COUNTING_SETS : [],
    removed: yield* elementSteps(removed),
    added: yield* elementSteps(added),
  });
}

/** Takes what each element of the table has counted from a reading, in short steps. */
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

/** The elements of entries: one for each direction. */
function* elementSteps(
  ids: Iterable<EntryId>,
): Generator<void, ReadonlyMap<CountingSet, readonly CountingElement[]>> {
  const elements = new Map(COUNTING_SETS.map((name) => [name, new Array<CountingElement>()]));
  let seen = 0;
  for (const id of ids) {
    if (++seen % SLICE_SIZE === 0) yield;
    const container = setOf(id);
    if (container === undefined) continue;
    for (const direction of DIRECTIONS) {
      const key = `${keyOfEntry(id)} . ${direction}`;
      elements.get(container)?.push({ element: { container, key } });
    }
  }
  return elements;
}

function setOf(id: EntryId): CountingSet | undefined {
  return COUNTING_SETS.find((name) => id.startsWith(`${name} `));
}
