/**
 * Represents rules by the instructions for the kernel. nft prints a rule in another form than the
 * input, which depends on its version, but the instructions that it generates and reads back are
 * the same. Pure except for its own state.
 *
 * @module
 */
import type { NftTable, NftTableSpec } from "./nft_objects.ts";
import { type ChainChange, NftTransaction } from "./nft_transaction.ts";

/** The instructions of each rule, by chain; a chain without rules may be left out. */
export type RuleCode = ReadonlyMap<string, readonly string[]>;

/** The kernel adds them to every rule: addresses and ports from a range are set. */
const RANGE_FLAGS = 0x3;

/**
 * Collects the instructions of written or listed rules from the output of `--debug=netlink`, line
 * by line.
 */
export class RuleCodeListing {
  readonly #head: string;
  readonly #isTrial: boolean;
  readonly #code = new Map<string, string[]>();
  #rules: string[] | undefined;

  /** `isTrial`: of the table that {@linkcode trialTransaction} names. @default {false} */
  constructor(table: NftTable, { isTrial = false }: { readonly isTrial?: boolean } = {}) {
    const { family, name } = isTrial ? trialTable(table) : table;
    this.#head = `${family} ${name} `;
    this.#isTrial = isTrial;
  }

  /** The instructions of all rules. */
  get code(): RuleCode {
    return this.#code;
  }

  /** Parses the next line, without its line feed. */
  take(line: string): void {
    // Most lines are elements.
    if (line.startsWith("\t\t") || line.startsWith("\telement ")) return;
    const instruction = /^ {2}(\[ .* \])$/.exec(line)?.[1];
    if (instruction !== undefined) {
      const last = (this.#rules?.length ?? 0) - 1;
      if (this.#rules) this.#rules[last] += `${normalInstruction(instruction)}\n`;
    } else if (line.startsWith(this.#head)) {
      const [name = "", word] = line.slice(this.#head.length).split(" ", 2);
      // nft 1.1 prints the chains that it creates too, as `ip kube-relay services use 0`; nft 1.0.6
      // prints them without their table and name.
      if (word === "use") this.#rules = undefined;
      else this.#begin(name);
    } else this.#rules = undefined;
  }

  /** A rule of a chain, or the elements of a set. */
  #begin(chain: string): void {
    // Another program changed the rules meanwhile: nft discarded its data and starts again.
    if (!this.#isTrial && chain.startsWith("@") && this.#code.has(chain)) this.#code.clear();
    this.#rules = this.#code.get(chain) ?? [];
    this.#rules.push("");
    this.#code.set(chain, this.#rules);
  }
}

/**
 * Chains for `nft --check --debug=netlink -f -`, in a table that the kernel discards. They have no
 * hooks, because the kernel must not use them during the check.
 */
export function trialTransaction(
  table: NftTableSpec,
  chains: readonly ChainChange[],
): NftTransaction {
  const trial = new NftTransaction(trialTable(table));
  trial.add("add table");
  for (const [name, container] of table.containers) trial.declare(name, container);
  trial.chains(chains.map(({ name, rules }) => ({ name, rules })));
  trial.rules(chains);
  return trial;
}

function trialTable({ family, name }: NftTable): NftTable {
  return { family, name: `${name}-compare` };
}

/** The kernel prints values in full that were given in short. */
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
  if (text.startsWith("[ counter ")) return "[ counter ]";
  if (text.startsWith("[ lookup ")) return text.replace(/ 0x0 \]$/, " ]");
  if (text.startsWith("[ dynset ")) return text.replace(/ timeout 0ms(?= )/, "");
  return text;
}
