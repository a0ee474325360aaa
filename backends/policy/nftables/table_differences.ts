/**
 * Compares a table with that of a plan. Pure.
 *
 * @module
 */
import { compareLists } from "../../../lib/proxy/compare_lists.ts";
import type { NftContainer, NftTable } from "../../netfilter/nft/nft_objects.ts";
import type { CodedTable } from "../../netfilter/nft/nft_runner.ts";
import { isDeclaredAs, normalHook, readChainPrint } from "../../netfilter/nft/printed_form.ts";
import type { RuleCode } from "../../netfilter/nft/rule_code.ts";
import type { PolicyDifference } from "../policy_data_plane.ts";
import type { WantedElement, WantedTable } from "./wanted_table.ts";

/** Elements between two pauses. */
const ELEMENTS_PER_STEP = 2_000;

/** The tables to compare. */
interface ComparedTables {
  readonly table: NftTable;
  readonly wanted: WantedTable;
  /** The instructions of the wanted chains' rules. */
  readonly code: RuleCode;
  /** The table that was read; `undefined` = it does not exist. */
  readonly found: CodedTable | undefined;
}

/** Compares in short steps. Ignores empty chains without an element: they remain from an earlier plan. */
export function* tableDifferences(
  { table, wanted, code, found }: ComparedTables,
): Generator<void, readonly PolicyDifference[]> {
  const name = `${table.family} ${table.name}`;
  if (found === undefined) return [{ object: "table", name, kind: "missing", wanted: name }];
  const differences: PolicyDifference[] = [];
  if (found.isDormant) {
    const texts = { wanted: "no flags", found: "flags dormant" };
    differences.push({ object: "table", name, kind: "altered", ...texts });
  }
  for (const difference of containerDifferences(wanted.containers, found)) {
    differences.push(difference);
  }
  for (const chain of wanted.chains.values()) {
    const there = found.rules.get(chain.name);
    if (there === undefined) {
      const text = chain.rules.join("\n");
      differences.push({ object: "chain", name: chain.name, kind: "missing", wanted: text });
    } else {
      const { hook, rules } = readChainPrint(there);
      const wantedHook = chain.hook === undefined ? undefined : normalHook(chain.hook);
      if (hook !== wantedHook) {
        const texts = { wanted: wantedHook ?? "no hook", found: hook ?? "no hook" };
        differences.push({ object: "chain", name: chain.name, kind: "altered", ...texts });
      }
      const codes = [code.get(chain.name) ?? [], found.code.get(chain.name) ?? []] as const;
      for (const { kind, wanted, found } of compareLists(...codes)) {
        const texts = textsOf(
          wanted === undefined ? undefined : chain.rules[wanted],
          rules[found ?? -1],
        );
        const place = `${chain.name}, rule ${(wanted ?? found ?? 0) + 1}`;
        differences.push({ object: "rule", name: place, kind, ...texts });
      }
    }
    yield;
  }
  for (const [name, print] of found.rules) {
    if (wanted.chains.has(name) || print === "") continue;
    differences.push({ object: "chain", name, kind: "extra", found: print.trim() });
  }
  for (const [name, { kind }] of wanted.containers) {
    if (!found.declarations.has(name)) continue;
    const present = found.elements.get(name) ?? new Map<string, string>();
    const keys = wanted.elements.get(name) ?? new Map<string, WantedElement>();
    yield* elementDifferences({ container: name, kind, keys, present }, differences);
  }
  return differences;
}

function containerDifferences(
  containers: WantedTable["containers"],
  { declarations }: CodedTable,
): readonly PolicyDifference[] {
  const differences: PolicyDifference[] = [];
  for (const [name, container] of containers) {
    const { kind: object, declaration: wanted } = container;
    const print = declarations.get(name);
    if (print === undefined) differences.push({ object, name, kind: "missing", wanted });
    else if (!isDeclaredAs(container, print)) {
      const found = print.trim().split("\n").slice(1).join(" ; ");
      differences.push({ object, name, kind: "altered", wanted, found });
    }
  }
  for (const [name, print] of declarations) {
    if (containers.has(name)) continue;
    const object = print.startsWith("map\n") ? "map" : "set";
    differences.push({ object, name, kind: "extra", found: `${object} ${name}` });
  }
  return differences;
}

function* elementDifferences(
  { container, kind, keys, present }: {
    readonly container: string;
    readonly kind: NftContainer["kind"];
    readonly keys: ReadonlyMap<string, WantedElement>;
    readonly present: ReadonlyMap<string, string>;
  },
  differences: PolicyDifference[],
): Generator<void> {
  const object = `${kind} element`;
  const textOf = (key: string, value = "") => value === "" ? key : `${key} : ${value}`;
  let seen = 0;
  for (const [key, { value }] of keys) {
    const found = present.get(key);
    if (found === (value ?? "")) continue;
    const texts = textsOf(textOf(key, value), found === undefined ? undefined : textOf(key, found));
    const difference = found === undefined ? "missing" : "altered";
    differences.push({ object, name: `${container} ${key}`, kind: difference, ...texts });
    if (++seen % ELEMENTS_PER_STEP === 0) yield;
  }
  for (const [key, value] of present) {
    if (keys.has(key)) continue;
    const texts = { found: textOf(key, value) };
    differences.push({ object, name: `${container} ${key}`, kind: "extra", ...texts });
    if (++seen % ELEMENTS_PER_STEP === 0) yield;
  }
}

function textsOf(wanted: string | undefined, found: string | undefined) {
  return { ...(wanted !== undefined && { wanted }), ...(found !== undefined && { found }) };
}
