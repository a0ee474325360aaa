import type { Flag } from "../../../config/flag.ts";
import { FLAG_ROWS } from "../../../config/flags.ts";
import { BACKEND_MODES } from "../../../proxy/backend.ts";
import type { DescribedVerb } from "../commands/help.ts";

/** The kind of a value, which decides how a shell completes it. */
export type ValueKind =
  | { readonly kind: "words"; readonly words: readonly string[] }
  | { readonly kind: "file" | "folder" | "service" | "other" };

/** The action with which a shell completes each kind of value except `words`. */
export type ValueActions = Readonly<Record<Exclude<ValueKind["kind"], "words">, string>>;

export interface CompletedFlag {
  /** As typed: `--mode`, `-v`. */
  readonly names: readonly string[];
  readonly help: string;
  /** Absent if the flag needs no value. */
  readonly value?: ValueKind;
  /** @default {every verb} */
  readonly verbs?: readonly string[];
}

interface CompletedVerb {
  readonly name: string;
  readonly summary: string;
  readonly operands: readonly ValueKind[];
}

/** The verbs and flags that the shells complete. */
export interface CompletionTable {
  readonly verbs: readonly CompletedVerb[];
  readonly flags: readonly CompletedFlag[];
}

/** The hidden verb that prints names of Services with a prefix, one per line. */
export const SERVICES_VERB = "complete-services";

/** The table of these verbs and of all flags but retired ones. */
export function completionTable(verbs: readonly DescribedVerb[]): CompletionTable {
  const shown = verbs.filter(({ hidden }) => !hidden);
  const rows: readonly Flag[] = FLAG_ROWS;
  return {
    verbs: shown.map(({ name, summary, operands = [] }) => ({
      name,
      summary,
      operands: operands.map((operand) =>
        operand.name === "VERB"
          ? { kind: "words", words: shown.map((verb) => verb.name) }
          : operand.choices
          ? { kind: "words", words: operand.choices }
          : { kind: OPERAND_KINDS[operand.name] ?? "other" }
      ),
    })),
    flags: rows.filter(({ retired }) => !retired).map((flag) => ({
      names: [flag.name, ...flag.aliases ?? []].map((name) =>
        `${name.length === 1 ? "-" : "--"}${name}`
      ),
      help: flag.help,
      ...(takesNextWord(flag) && { value: valueOf(flag) }),
      ...(flag.verbs && { verbs: flag.verbs }),
    })),
  };
}

const OPERAND_KINDS: Readonly<Record<string, "file" | "service">> = {
  FILE: "file",
  FROM: "service",
  TO: "service",
};

const VALUE_KINDS: Readonly<Record<string, "file" | "folder" | "service">> = {
  FILE: "file",
  PATH: "file",
  DIR: "folder",
  "NAMESPACE/NAME": "service",
};

function takesNextWord({ type, implied }: Flag): boolean {
  return type !== "boolean" && implied === undefined;
}

function valueOf({ name, choices, value = "" }: Flag): ValueKind {
  if (choices) return { kind: "words", words: choices.filter((choice) => choice !== "") };
  if (name === "proxy-mode") return { kind: "words", words: [...BACKEND_MODES, "auto"] };
  // `status --filter` takes the beginning of a Service's name.
  return { kind: name === "filter" ? "service" : VALUE_KINDS[value] ?? "other" };
}

/** Longest help of a word in a list of completions. */
const LONGEST = 60;

/** Returns the first clause of a help text, cut at a word. */
export function shortHelp(help: string): string {
  const [clause = ""] = help.split(/[;:.] /);
  if (clause.length <= LONGEST) return clause;
  const cut = clause.slice(0, LONGEST - 1);
  return `${cut.slice(0, cut.lastIndexOf(" "))}\u2026`;
}
