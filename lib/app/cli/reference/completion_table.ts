import type { Flag } from "../../../config/flag.ts";
import { FLAG_ROWS } from "../../../config/flags.ts";
import { KNOWN_MODES } from "../../../config/mode_request.ts";
import type { DescribedVerb } from "../commands/help.ts";

/** What a value is: words of a list, something of the file system, a Service, or nothing we know. */
export type ValueKind =
  | { readonly kind: "words"; readonly words: readonly string[] }
  | { readonly kind: "file" | "folder" | "service" | "other" };

/** A flag, with all of its names. */
export interface CompletedFlag {
  /** As typed: `--mode`, `-v`. */
  readonly names: readonly string[];
  readonly help: string;
  /** Absent when it takes none, or none has to be given. */
  readonly value?: ValueKind;
  /** @default every verb */
  readonly verbs?: readonly string[];
}

/** A verb, with what stands after it. */
interface CompletedVerb {
  readonly name: string;
  readonly summary: string;
  readonly operands: readonly ValueKind[];
}

/** Everything. */
export interface CompletionTable {
  readonly verbs: readonly CompletedVerb[];
  readonly flags: readonly CompletedFlag[];
}

/** The hidden verb that prints names of Services which begin with its operand, one a line. */
export const SERVICES_VERB = "complete-services";

/** The table of these verbs and of all flags that are not retired. */
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
  if (name === "proxy-mode") return { kind: "words", words: [...KNOWN_MODES, "auto"] };
  // `status --filter` takes the beginning of a Service's name.
  return { kind: name === "filter" ? "service" : VALUE_KINDS[value] ?? "other" };
}
