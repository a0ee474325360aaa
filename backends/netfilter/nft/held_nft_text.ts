/**
 * Texts for `nft -i`, which takes each line as a transaction. Pure.
 *
 * @module
 */

/** An input of which only the start may have been read. */
interface InputStart {
  /** The whole text; `undefined` = it is longer than was asked for. */
  readonly start: string | undefined;
  /** The same input as before. */
  readonly whole: string | Iterable<string>;
}

/** Reads an input up to a number of characters. */
export function startOf(input: string | Iterable<string>, most: number): InputStart {
  if (typeof input === "string") {
    return { start: input.length > most ? undefined : input, whole: input };
  }
  const pieces = input[Symbol.iterator]();
  let start = "";
  for (let piece = pieces.next(); !piece.done; piece = pieces.next()) {
    start += piece.value;
    if (start.length <= most) continue;
    return { start: undefined, whole: continued(start, pieces) };
  }
  return { start, whole: start };
}

function* continued(start: string, pieces: Iterator<string>): Generator<string> {
  yield start;
  for (let piece = pieces.next(); !piece.done; piece = pieces.next()) yield piece.value;
}

/**
 * Returns a text of commands as one line with the same meaning; `undefined` = it holds something that
 * means more to `nft -i` or to its line editor, e.g. a tab or a comment. Within braces a line may end
 * only where that means nothing: between rules it would mean as much as a semicolon.
 */
export function asOneLine(text: string): string | undefined {
  if (!/^[\n\x20-\x7e]*$/.test(text)) return undefined;
  let depth = 0;
  let words = "";
  for (const line of text.split("\n")) {
    const unquoted = line.replaceAll(/"[^"]*"/g, "").trim();
    if (/["#\\]/.test(unquoted)) return undefined;
    if (unquoted === "") continue;
    if (depth > 0 && !/[{,] $/.test(words) && !unquoted.startsWith("}")) return undefined;
    for (const brace of unquoted.matchAll(/[{}]/g)) depth += brace[0] === "{" ? 1 : -1;
    words += depth === 0 ? `${line}; ` : `${line} `;
  }
  return depth === 0 ? words.trimEnd() : undefined;
}
