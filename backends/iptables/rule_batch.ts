/**
 * Arranges changes of chains as input for `iptables-restore`, so that no packet meets a state between
 * the old rules and the new ones. Pure.
 *
 * One input has up to three parts, each of which the kernel applies atomically:
 *
 * 1. filter, stricter: the old *and* the new refusals;
 * 2. nat: the new endpoints;
 * 3. filter, looser: only the new refusals.
 *
 * A rule of filter meets only packets that nat did not rewrite. An early refusal therefore has no
 * effect while nat still sends the packet to an endpoint. A late refusal would let a packet to the
 * address of a Service out to the network.
 *
 * @module
 */
import type {
  IptablesTable,
  Jump,
  PlacedLine,
  RestorePart,
  WrittenChain,
} from "../netfilter/iptables/iptables_objects.ts";

/** A chain that differs. */
export interface ChainChange {
  readonly table: IptablesTable;
  readonly name: string;
  /** Its rules before; `undefined` = it did not exist. */
  readonly before?: readonly string[] | undefined;
  /** Its rules from now on; `undefined` = it is removed. */
  readonly rules?: readonly string[] | undefined;
}

/** Arranges the changes. `jumps` to add are in the order of insertion. */
export function ruleBatch(
  chains: readonly ChainChange[],
  jumps: readonly (PlacedLine | Jump)[],
  removedJumps: readonly PlacedLine[] = [],
): readonly RestorePart<IptablesTable>[] {
  const of = (table: IptablesTable) => {
    const isHere = (each: { readonly table: IptablesTable }) => each.table === table;
    const here = chains.filter(isHere);
    return {
      chains: here.filter(isWritten),
      removed: here.filter(({ rules }) => rules === undefined).map(({ name }) => name),
      removedJumps: removedJumps.filter(isHere),
      jumps: jumps.filter(isHere),
    };
  };
  const { chains: written, removed, ...jumpsOfFilter } = of("filter");
  const { stricter, looser } = filterParts(written);
  const parts: readonly RestorePart<IptablesTable>[] = [
    { table: "mangle", ...of("mangle") },
    { table: "filter", chains: stricter, ...jumpsOfFilter },
    { table: "nat", ...of("nat") },
    { table: "filter", chains: looser, removed },
  ];
  const isNeeded = (part: RestorePart<IptablesTable>) =>
    [part.chains, part.removed, part.removedJumps, part.jumps].some((list) => list?.length);
  return parts.filter(isNeeded);
}

type WrittenChange = ChainChange & WrittenChain;

function isWritten(change: ChainChange): change is WrittenChange {
  return change.rules !== undefined;
}

/**
 * Writes each chain of filter first with its old and its new rules, then only with the new ones. A
 * chain that only gains rules is complete after the first part; one that only loses rules needs
 * only the second.
 */
function filterParts(chains: readonly WrittenChange[]) {
  const stricter: WrittenChain[] = [];
  const looser: WrittenChain[] = [];
  for (const chain of chains) {
    const { before, rules } = chain;
    const present = before ?? [];
    const kept = new Set(rules);
    const lost = present.filter((rule) => !kept.has(rule));
    const gains = before === undefined || rules.length > present.length - lost.length;
    // If only the order differs, any part will do.
    if (gains || lost.length === 0) stricter.push({ ...chain, rules: [...rules, ...lost] });
    if (lost.length > 0) looser.push(chain);
  }
  return { stricter, looser };
}
