/**
 * The part of a rule set that is for some ServicePorts: their own rules, what those lead to, and the
 * rules that lead to them. Pure.
 *
 * @module
 */
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { RestoreBatch } from "./restore_batch.ts";

/** Which rules are wanted. */
export interface ExcerptOptions {
  readonly keys: ReadonlySet<ServicePortKey>;
  /** Rules that several ServicePorts have in common and that stand there once, as text without chain. */
  readonly shared?: ReadonlySet<string>;
}

/** A line of a `*table … COMMIT`. */
interface Line {
  readonly text: string;
  /** The chain that it makes or adds to. */
  readonly chain: string;
  readonly isRule: boolean;
  /** What packets go to by it. */
  readonly target: string | undefined;
  readonly isOwn: boolean;
}

const RULE = /^-[AI] (\S+) (.*)$/;
const CHAIN = /^:(\S+) /;
const QUOTED = /"(?:[^"\\]|\\.)*"/g;
const TARGET = /(?:^| )-[jg] (\S+)/;

/** Lines of the batch, as input for `iptables-restore --noflush` that is complete in itself. */
export function* serviceExcerpt(batch: RestoreBatch, options: ExcerptOptions): Generator<string> {
  let table = "";
  let lines: Line[] = [];
  for (const [index, text] of batch.lines.entries()) {
    if (text.startsWith("*")) {
      table = text;
      lines = [];
    } else if (text === "COMMIT") {
      const kept = keptLines(lines);
      if (kept.length > 0) yield [table, ...kept.map(({ text }) => text), text, ""].join("\n");
    } else {
      const line = readLine(text, batch.ownerOf(index + 1), options);
      if (line) lines.push(line);
    }
  }
}

function readLine(
  text: string,
  owner: ServicePortKey | undefined,
  { keys, shared }: ExcerptOptions,
): Line | undefined {
  const chain = CHAIN.exec(text)?.[1];
  if (chain !== undefined) return { text, chain, isRule: false, target: undefined, isOwn: false };
  const [, from, rule] = RULE.exec(text) ?? [];
  if (from === undefined || rule === undefined) return undefined;
  // A comment may hold anything.
  const target = TARGET.exec(rule.includes('"') ? rule.replaceAll(QUOTED, "") : rule)?.[1];
  const isOwn = (owner !== undefined && keys.has(owner)) || shared?.has(rule) === true;
  return { text, chain: from, isRule: true, target, isOwn };
}

function keptLines(lines: readonly Line[]): readonly Line[] {
  const own = lines.filter(({ isOwn }) => isOwn);
  if (own.length === 0) return [];
  const above = reached(
    own.map(({ chain }) => chain),
    (chain) => lines.filter(({ target }) => target === chain).map(({ chain }) => chain),
  );
  const below = reached(
    own.flatMap(({ target }) => target ?? []),
    (chain) => lines.filter((line) => line.chain === chain).flatMap(({ target }) => target ?? []),
  );
  return lines.filter(({ isRule, isOwn, chain, target }) => {
    if (!isRule) return above.has(chain) || below.has(chain);
    return isOwn || below.has(chain) || (target !== undefined && above.has(target));
  });
}

/** Everything that a walk from `start` comes to, itself included. */
function reached(
  start: readonly string[],
  next: (chain: string) => readonly string[],
): ReadonlySet<string> {
  const found = new Set(start);
  for (const chain of found) for (const further of next(chain)) found.add(further);
  return found;
}
