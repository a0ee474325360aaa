/**
 * Rules as the kernel is given them. nft prints a rule otherwise than it was told, each version in its
 * own way; the instructions that it makes of a rule, and reads back, are the same. Pure but for its
 * own state.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { Chain } from "./base_chains.ts";
import { type Container, CONTAINER_NAMES, containersOf } from "./containers.ts";
import { EXPRESSIONS } from "./expressions.ts";

/** The instructions of each rule, by chain; a chain without rules may be left out. */
export type RuleCode = ReadonlyMap<string, readonly string[]>;

/** The table that rules are judged in; the kernel throws it away again. */
const SCRATCH_TABLE = "kube-relay-compare";
/** The kernel's own words for what everybody means: addresses and ports from a range are set. */
const RANGE_FLAGS = 0x3;

/** What `--debug=netlink` prints, line by line, of rules that are written or listed. */
export class RuleCodeListing {
  readonly #family: "ip" | "ip6";
  readonly #table: string;
  readonly #code = new Map<string, string[]>();
  readonly #containers = new Map<string, Container["kind"]>();
  #rules: string[] | undefined;
  #isInTable = false;
  #isDormant = false;

  /** `table`: whose rules are meant. @default {those that {@linkcode trialText} speaks of} */
  constructor(family: IpFamily, table = SCRATCH_TABLE) {
    this.#family = EXPRESSIONS[family].table;
    this.#table = table;
  }

  /** The instructions of all rules. */
  get code(): RuleCode {
    return this.#code;
  }

  /** Of a listing: every set and map. */
  get containers(): ReadonlyMap<string, Container["kind"]> {
    return this.#containers;
  }

  /** Of a listing: whether the kernel passes over the whole table. */
  get isDormant(): boolean {
    return this.#isDormant;
  }

  /** Takes the next line, without its line feed. */
  take(line: string): void {
    // Elements are most of it.
    if (line.startsWith("\t\t") || line.startsWith("\telement ")) return;
    const instruction = /^ {2}(\[ .* \])$/.exec(line)?.[1];
    if (instruction !== undefined) {
      const last = (this.#rules?.length ?? 0) - 1;
      if (this.#rules) this.#rules[last] += `${normalInstruction(instruction)}\n`;
      return;
    }
    const head = `${this.#family} ${this.#table} `;
    if (line.startsWith(head)) return this.#begin(line.slice(head.length).split(" ", 1)[0] ?? "");
    this.#rules = undefined;
    if (line.startsWith("table ")) this.#isInTable = line === `table ${head}{`;
    if (!this.#isInTable) return;
    if (/^\tflags .*\bdormant\b/.test(line)) this.#isDormant = true;
    const [, kind, name] = /^\t(set|map) (\S+) \{$/.exec(line) ?? [];
    if (name !== undefined) this.#containers.set(name, kind === "map" ? "map" : "set");
  }

  /** A rule of a chain, or the elements of a set. */
  #begin(chain: string): void {
    // Somebody else wrote to the kernel meanwhile: nft threw away what it had, and begins anew.
    if (this.#table !== SCRATCH_TABLE && chain.startsWith("@") && this.#code.has(chain)) {
      this.#code.clear();
    }
    this.#rules = this.#code.get(chain) ?? [];
    this.#rules.push("");
    this.#code.set(chain, this.#rules);
  }
}

/**
 * Chains for `nft --check --debug=netlink -f -`, in a table that never comes to be. Without their
 * hooks: nothing is to be hooked for as long as the kernel judges.
 */
export function* trialText(family: IpFamily, chains: readonly Chain[]): Generator<string> {
  const table = `${EXPRESSIONS[family].table} ${SCRATCH_TABLE}`;
  const containers = containersOf(family);
  yield `add table ${table}\n`;
  for (const name of CONTAINER_NAMES) {
    const { kind, declaration } = containers[name];
    yield `add ${kind} ${table} ${name} { ${declaration} ; }\n`;
  }
  for (const { name } of chains) yield `add chain ${table} ${name}\n`;
  for (const { name, rules } of chains) {
    yield rules.map((rule) => `add rule ${table} ${name} ${rule}\n`).join("");
  }
}

/** The kernel says in full what it was told in short. */
function normalInstruction(text: string): string {
  if (text.startsWith("[ nat ")) {
    return text.replaceAll(/ (?:addr|proto)_max reg \d+/g, "").replace(
      / flags 0x([0-9a-f]+)(?= )/,
      (_, flags: string) => {
        const chosen = parseInt(flags, 16) & ~RANGE_FLAGS;
        return chosen === 0 ? "" : ` flags 0x${chosen.toString(16)}`;
      },
    );
  }
  if (text.startsWith("[ lookup ")) return text.replace(/ 0x0 \]$/, " ]");
  if (text.startsWith("[ dynset ")) return text.replace(/ timeout 0ms(?= )/, "");
  return text;
}
