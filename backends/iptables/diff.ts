/**
 * Computes the input for `iptables-restore` that brings the applied rules to the wanted ones. The
 * order ensures that no packet meets a state between the two. Pure.
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
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { AppliedRules } from "./applied_rules.ts";
import { isServiceChain, type Jump } from "./base_chains.ts";
import { type ChainContent, chainKey, type ChainRef } from "./chain_ref.ts";
import type { IptablesLayout } from "./layout.ts";
import {
  type AppliedChain,
  type PlacedLine,
  RestoreBatch,
  type RestorePart,
} from "../netfilter/iptables/restore_batch.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { atOnce } from "../netfilter/in_steps.ts";

/** The content of a batch besides the chains that differ. */
interface DiffOptions {
  /** Jumps that are missing, in the order of insertion. @default {none} */
  readonly jumps?: readonly Jump[];
  /** Jumps that are in the wrong place, or there twice. @default {none} */
  readonly removedJumps?: readonly PlacedLine[];
  /** Further chains to remove, from {@linkcode staleChains}. @default {none} */
  readonly stale?: StaleChains;
  /**
   * Chains, as {@linkcode chainKey}, with foreign references: they are emptied instead of removed.
   * @default {none}
   */
  readonly kept?: ReadonlySet<string>;
}

/** Names of chains, by table. */
export type StaleChains = Readonly<Record<IptablesTable, readonly string[]>>;

/** A chain and its content, for one part. */
type NamedContent = ChainContent & { readonly name: string };

/** The chains that differ. */
interface Differences {
  readonly written: Readonly<Record<IptablesTable, NamedContent[]>>;
  readonly removed: Readonly<Record<IptablesTable, string[]>>;
  readonly applied: AppliedChain[];
}

/** The state that chains are compared with, and the differences found. */
interface Comparison {
  readonly applied: AppliedRules;
  readonly differences: Differences;
  readonly kept: ReadonlySet<string>;
}

const TABLES: readonly IptablesTable[] = ["mangle", "filter", "nat"];

/**
 * Returns the batch that changes the kernel from `applied` to the desired state. Looks only at the
 * chains that the layout touched since it was last settled. After success, call
 * `applied.confirm(batch.applied)` and `layout.settle()`. After a failure either table may have
 * been written: read them.
 */
export function diffRules(
  layout: Pick<IptablesLayout, "content" | "dirty">,
  applied: AppliedRules,
  options: DiffOptions = {},
): RestoreBatch<ServicePortKey> {
  return atOnce(diffRulesInSteps(layout, applied, options));
}

/**
 * Returns existing chains of ServicePorts that are not desired: leftovers of an earlier run or of
 * kube-proxy. Walks over all chains.
 */
export function staleChains(
  layout: { chains(): Iterable<ChainRef> },
  applied: AppliedRules,
): StaleChains {
  const wanted = new Set([...layout.chains()].map(chainKey));
  const staleIn = (table: IptablesTable) =>
    applied.names(table).filter((name) =>
      isServiceChain(table, name) && !wanted.has(chainKey({ table, name }))
    );
  return { filter: staleIn("filter"), mangle: [], nat: staleIn("nat") };
}

/** As {@linkcode diffRules}, in short steps. The layout must not change in between. */
export function* diffRulesInSteps(
  layout: Pick<IptablesLayout, "content" | "dirty">,
  applied: AppliedRules,
  { jumps = [], removedJumps = [], stale, kept = new Set() }: DiffOptions = {},
): Generator<void, RestoreBatch<ServicePortKey>, void> {
  const differences: Differences = {
    written: { filter: [], mangle: [], nat: [] },
    removed: { filter: [], mangle: [], nat: [] },
    applied: [],
  };
  for (const ref of layout.dirty) {
    yield;
    compareChain(ref, { content: layout.content(ref), applied, differences, kept });
  }
  for (const table of TABLES) {
    const known = new Set(differences.removed[table]);
    for (const name of stale?.[table] ?? []) {
      if (!known.has(name)) removeChain({ table, name }, { applied, differences, kept });
    }
  }
  const parts = partsOf(differences, { applied, jumps, removedJumps });
  return yield* RestoreBatch.steps(parts, differences.applied);
}

function compareChain(
  { table, name }: ChainRef,
  { content, ...comparison }: Comparison & { readonly content: ChainContent | undefined },
): void {
  const { applied, differences } = comparison;
  if (content !== undefined) {
    const { rules } = content;
    if (applied.holds({ table, name, rules })) return;
    differences.written[table].push({ ...content, name });
    differences.applied.push({ table, name, rules });
  } else if (applied.has({ table, name })) {
    removeChain({ table, name }, comparison);
  }
}

function removeChain(
  { table, name }: Pick<ChainRef, "name" | "table">,
  { applied, differences, kept }: Comparison,
): void {
  if (!kept.has(chainKey({ table, name }))) {
    differences.removed[table].push(name);
    differences.applied.push({ table, name });
  } else if (!applied.holds({ table, name, rules: [] })) {
    differences.written[table].push({ name, rules: [], owners: [] });
    differences.applied.push({ table, name, rules: [] });
  }
}

function partsOf(
  { written, removed }: Differences,
  { applied, jumps, removedJumps }:
    & Pick<Comparison, "applied">
    & Required<Pick<DiffOptions, "jumps" | "removedJumps">>,
): readonly RestorePart<ServicePortKey>[] {
  const jumpsOf = (table: IptablesTable) => ({
    removedJumps: removedJumps.filter((jump) => jump.table === table),
    jumps: jumps.filter((jump) => jump.table === table),
  });
  const { stricter, looser } = filterParts(written.filter, applied);
  const parts: readonly RestorePart<ServicePortKey>[] = [
    { table: "mangle", chains: written.mangle, removed: removed.mangle, jumps: [] },
    { table: "filter", chains: stricter, removed: [], ...jumpsOf("filter") },
    { table: "nat", chains: written.nat, removed: removed.nat, ...jumpsOf("nat") },
    { table: "filter", chains: looser, removed: removed.filter, jumps: [] },
  ];
  return parts.filter(({ chains = [], removed = [], removedJumps = [], jumps = [] }) =>
    chains.length + removed.length + removedJumps.length + jumps.length > 0
  );
}

/**
 * Writes each chain of filter first with its old and its new rules, then only with the new ones. A
 * chain that only gains rules is complete after the first part; one that only loses rules needs
 * only the second.
 */
function filterParts(
  chains: readonly NamedContent[],
  applied: AppliedRules,
): { readonly stricter: readonly NamedContent[]; readonly looser: readonly NamedContent[] } {
  const stricter: NamedContent[] = [];
  const looser: NamedContent[] = [];
  for (const chain of chains) {
    const present = applied.filterRules(chain.name);
    const kept = new Set(chain.rules);
    const lost = present.filter((rule) => !kept.has(rule));
    const gains = !applied.has({ table: "filter", name: chain.name }) ||
      chain.rules.length > present.length - lost.length;
    // If only the order differs, any part will do.
    if (gains || lost.length === 0) {
      stricter.push({
        name: chain.name,
        rules: [...chain.rules, ...lost],
        owners: [...chain.owners, ...lost.map(() => undefined)],
      });
    }
    if (lost.length > 0) looser.push(chain);
  }
  return { stricter, looser };
}
