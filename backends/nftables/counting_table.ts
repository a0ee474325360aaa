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
import { type EntryId, keyOfEntry } from "./entry_id.ts";
import { EXPRESSIONS } from "./expressions.ts";

/** Its name. */
export const COUNTING_TABLE = "kube-relay-counters";

/** Its sets; each element has a counter. */
const COUNTING_SETS = ["service-ips", "node-ports"] as const;

/** Where a packet goes, as conntrack says it. */
export const DIRECTIONS = ["original", "reply"] as const;

/** One of {@linkcode DIRECTIONS}. */
export type Direction = typeof DIRECTIONS[number];

/** A chain of the table. */
interface CountingChain {
  readonly name: string;
  /** `undefined` = entered from other chains only. */
  readonly hook: string | undefined;
  readonly rules: readonly string[];
}

/** What is written. */
export interface CountingChanges {
  /** Whether the table with its sets, chains and rules is written. */
  readonly declares: boolean;
  /** Whether the sets are emptied first; all counters begin anew. @default {false} */
  readonly empties?: boolean;
  readonly removed: Iterable<EntryId>;
  readonly added: Iterable<EntryId>;
}

const PROTOCOLS = "meta l4proto { tcp, udp, sctp }";
const PORT = "meta l4proto . ct original proto-dst . ct direction";
const COUNT = "ct status dnat goto count";
/** After all DNAT of the usual priority, before those who drop at the usual one. */
const PRIORITY = -80;
const CHUNK_ELEMENTS = 500;

/** The chains, in an order in which each one is there before others lead to it. */
function countingChains(family: IpFamily): readonly CountingChain[] {
  const { table } = EXPRESSIONS[family];
  // Without the protocols first, nft 1.0.6 takes a port of conntrack into no key.
  const vip = `${PROTOCOLS} ct original ${table} daddr . ${PORT}`;
  return [
    {
      name: "count",
      hook: undefined,
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

/** Input for `nft -f -`, in pieces; none where nothing is to be done. */
export function* countingText(family: IpFamily, changes: CountingChanges): Generator<string> {
  const table = `${EXPRESSIONS[family].table} ${COUNTING_TABLE}`;
  if (changes.declares) yield declaration(family, table);
  if (changes.empties) yield COUNTING_SETS.map((set) => `flush set ${table} ${set}\n`).join("");
  yield* elementText(`delete element ${table}`, changes.removed);
  yield* elementText(`add element ${table}`, changes.added);
}

/** Input for `nft -f -` that takes the table away, whether it is there or not. */
export function countingRemoval(family: IpFamily): string {
  const table = `${EXPRESSIONS[family].table} ${COUNTING_TABLE}`;
  return `add table ${table}\ndelete table ${table}\n`;
}

function declaration(family: IpFamily, table: string): string {
  const { address } = EXPRESSIONS[family];
  const port = "inet_proto . inet_service . ct_dir";
  const chains = countingChains(family);
  const lines = [
    `add table ${table}`,
    `add set ${table} service-ips { type ${address} . ${port} ; counter ; }`,
    `add set ${table} node-ports { type ${port} ; counter ; }`,
    ...chains.map(({ name, hook }) =>
      `add chain ${table} ${name}${hook === undefined ? "" : ` { ${hook} ; }`}`
    ),
    ...chains.map(({ name }) => `flush chain ${table} ${name}`),
    ...chains.flatMap(({ name, rules }) =>
      rules.map((rule) => `add rule ${table} ${name} ${rule}`)
    ),
  ];
  return lines.map((line) => `${line}\n`).join("");
}

/** One command for each set: a command for each element takes twice the time. */
function* elementText(command: string, ids: Iterable<EntryId>): Generator<string> {
  const bySet = Map.groupBy(ids, setOf);
  for (const set of COUNTING_SETS) {
    const elements = bySet.get(set) ?? [];
    if (elements.length === 0) continue;
    yield `${command} ${set} {`;
    for (let from = 0; from < elements.length; from += CHUNK_ELEMENTS) {
      const lines = elements.slice(from, from + CHUNK_ELEMENTS)
        .flatMap((id) => DIRECTIONS.map((direction) => `  ${keyOfEntry(id)} . ${direction}`));
      yield `${from === 0 ? "" : ","}\n${lines.join(",\n")}`;
    }
    yield "\n}\n";
  }
}

function setOf(id: EntryId): typeof COUNTING_SETS[number] | undefined {
  return COUNTING_SETS.find((name) => id.startsWith(`${name} `));
}

function hookAt(hook: string): string {
  return `type filter hook ${hook} priority ${PRIORITY}`;
}
