import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { targetOf } from "../netfilter/iptables/iptables_save.ts";
import type { RestoreBatch } from "../netfilter/iptables/restore_batch.ts";

interface ExcerptOptions {
  readonly keys: ReadonlySet<ServicePortKey>;
  /** Rules that exist once for several ServicePorts, as text without the chain. */
  readonly shared?: ReadonlySet<string>;
}

/** A rule of a `*table … COMMIT`. */
interface RuleLine {
  /** The chain that contains it. */
  readonly chain: string;
  /** The chain or verdict after `-j` or `-g`. */
  readonly target: string | undefined;
}

const RULE = /^-[AI] (\S+) (.*)$/;
const CHAIN = /^:(\S+) /;

/**
 * Returns the lines of a batch that concern some ServicePorts: complete input for
 * `iptables-restore --noflush`.
 */
export function serviceExcerpt(
  batch: RestoreBatch<ServicePortKey>,
  options: ExcerptOptions,
): Iterable<string> {
  return new ServiceExcerpts(batch).text(options);
}

/** Excerpts of one batch. Each takes time in proportion to its own size, not to that of the batch. */
export class ServiceExcerpts {
  readonly #tables: readonly TableLines[];

  constructor(batch: RestoreBatch<ServicePortKey>) {
    const tables: TableLines[] = [];
    for (const [index, text] of batch.lines.entries()) {
      if (text.startsWith("*")) tables.push(new TableLines());
      tables.at(-1)?.add(text, batch.ownerOf(index + 1));
    }
    this.#tables = tables;
  }

  /** As {@linkcode serviceExcerpt}. */
  *text(options: ExcerptOptions): Generator<string> {
    for (const table of this.#tables) yield* table.text(options);
  }
}

/** An index of the lines of one `*table … COMMIT`, by line number. */
class TableLines {
  readonly #lines: string[] = [];
  readonly #rules = new Map<number, RuleLine>();
  readonly #chains = new Map<string, number>();
  readonly #byOwner = new Map<ServicePortKey, number[]>();
  readonly #byRule = new Map<string, number[]>();
  readonly #byChain = new Map<string, number[]>();
  readonly #byTarget = new Map<string, number[]>();

  add(text: string, owner: ServicePortKey | undefined): void {
    const number = this.#lines.push(text) - 1;
    const chain = CHAIN.exec(text)?.[1];
    if (chain !== undefined) this.#chains.set(chain, number);
    const [, from, rule] = RULE.exec(text) ?? [];
    if (from === undefined || rule === undefined) return;
    const target = targetOf(rule);
    this.#rules.set(number, { chain: from, target });
    addTo(this.#byChain, from, number);
    addTo(this.#byRule, rule, number);
    if (target !== undefined) addTo(this.#byTarget, target, number);
    if (owner !== undefined) addTo(this.#byOwner, owner, number);
  }

  *text(options: ExcerptOptions): Generator<string> {
    const kept = this.#keptLines(options);
    if (kept.length === 0) return;
    const numbers = [0, ...kept, this.#lines.length - 1];
    yield numbers.map((number) => `${this.#lines[number]}\n`).join("");
  }

  /** Returns the numbers of the selected lines, without the first and the last of the table. */
  #keptLines({ keys, shared = new Set() }: ExcerptOptions): readonly number[] {
    const kept = new Set<number>();
    for (const key of keys) addAll(kept, this.#byOwner.get(key));
    for (const rule of shared) addAll(kept, this.#byRule.get(rule));
    const own = [...kept].map((number) => this.#rules.get(number)!);
    const above = reached(
      own.map(({ chain }) => chain),
      (chain) => this.#rulesOf(this.#byTarget, chain).map(({ chain }) => chain),
    );
    const below = reached(
      own.flatMap(({ target }) => target ?? []),
      (chain) => this.#rulesOf(this.#byChain, chain).flatMap(({ target }) => target ?? []),
    );
    for (const chain of above) addAll(kept, this.#byTarget.get(chain));
    for (const chain of below) addAll(kept, this.#byChain.get(chain));
    for (const chain of [...above, ...below]) {
      const number = this.#chains.get(chain);
      if (number !== undefined) kept.add(number);
    }
    return [...kept].sort((one, other) => one - other);
  }

  #rulesOf(index: ReadonlyMap<string, readonly number[]>, chain: string): readonly RuleLine[] {
    return index.get(chain)?.map((number) => this.#rules.get(number)!) ?? [];
  }
}

function addTo<Key>(index: Map<Key, number[]>, key: Key, number: number): void {
  const numbers = index.get(key);
  if (numbers === undefined) index.set(key, [number]);
  else numbers.push(number);
}

function addAll(numbers: Set<number>, more: readonly number[] = []): void {
  for (const number of more) numbers.add(number);
}

/** Returns all chains reachable from `start`, including `start`. */
function reached(
  start: readonly string[],
  next: (chain: string) => readonly string[],
): ReadonlySet<string> {
  const found = new Set(start);
  for (const chain of found) for (const further of next(chain)) found.add(further);
  return found;
}
