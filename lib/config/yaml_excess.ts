import { Lexer } from "yaml";

/**
 * Most tokens (words, punctuation, indentation) of a text that the exact parser reads. It takes 3
 * µs for each in valid text and 10 µs in garbage, without interruption.
 */
const MAX_TOKENS = 10_000;

/** Deepest nesting that the exact parser reads; each level costs stack. */
const MAX_NESTING = 64;

/** The lexer's mark before a scalar. */
const SCALAR_MARK = "\x1f";

/** Returns the part that would take the exact parser too long, and its line. */
export function findExcess(
  text: string,
): { readonly line: number; readonly message: string } | undefined {
  let [tokens, line, flows, blocks] = [0, 1, 0, 0];
  let isScalar = false;
  for (const token of new Lexer().lex(text)) {
    if (++tokens > MAX_TOKENS) {
      const message = `Cannot read YAML: a document may have at most ${MAX_TOKENS} tokens; split ` +
        "it, or write it as JSON, or as YAML without anchors, tags and letters beyond ASCII";
      return { line, message };
    }
    // A mark of its own precedes each scalar.
    if (isScalar || token === SCALAR_MARK) isScalar = token === SCALAR_MARK;
    else if (token === "[" || token === "{") flows++;
    else if (token === "]" || token === "}") flows--;
    else if (token === "-" || token === "?") blocks++;
    if (flows > MAX_NESTING || blocks > MAX_NESTING) {
      const message = `Cannot read YAML: it is nested more than ${MAX_NESTING} levels deep`;
      return { line, message };
    }
    const lines = token.split("\n").length - 1;
    line += lines;
    if (lines > 0) blocks = 0;
  }
  return undefined;
}
