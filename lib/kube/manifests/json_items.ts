/**
 * Finds the items of a list in JSON text without parsing it: parsing the output of `kubectl get -o
 * json` for 10,000 Services would block the event loop for 100 ms.
 *
 * @module
 */
import { MAX_PLAIN_LENGTH } from "../../config/yaml_source.ts";

/** The positions of the items in the text, and the range to remove for an empty list. */
export interface FoundItems {
  readonly start: number;
  readonly end: number;
  readonly items: readonly { readonly start: number; readonly end: number }[];
}

/** Characters between two opportunities for the caller to yield. */
const STRIDE = 64 * 1024;

const NEXT_TOKEN = /["[\]{},]/g;

/**
 * Returns the positions of the entries of the top level's `items`; `undefined` if there is no such
 * list, or if the text ends inside it. The parser checks whether the entries are JSON.
 */
export function* findJsonItems(text: string): Generator<void, FoundItems | undefined> {
  const items: { start: number; end: number }[] = [];
  const token = new RegExp(NEXT_TOKEN);
  let depth = 0;
  let listStart: number | undefined;
  let itemStart = 0;
  let pauseAt = STRIDE;
  for (let match = token.exec(text); match; match = token.exec(text)) {
    const at = match.index;
    const character = match[0];
    if (character === '"') {
      token.lastIndex = endOfString(text, at);
    } else if (character === "[" || character === "{") {
      depth++;
      const opens = listStart === undefined && depth === 2 && character === "[";
      if (opens && /"items"\s*:\s*$/.test(text.slice(Math.max(0, at - 64), at))) {
        itemStart = listStart = at + 1;
      }
    } else if (listStart !== undefined && depth === 2 && character !== "}") {
      if (/\S/.test(text.slice(itemStart, at))) items.push(trim(text, itemStart, at));
      itemStart = at + 1;
      if (character === "]") return { start: listStart, end: at, items };
    } else if (character !== ",") {
      depth--;
    }
    if (at >= pauseAt) {
      pauseAt = at + STRIDE;
      yield;
    }
  }
  return undefined;
}

/** A string without an end is an error of the parser. */
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    if (at - start > MAX_PLAIN_LENGTH) break;
    let backslashes = 0;
    while (text[at - 1 - backslashes] === "\\") backslashes++;
    if (backslashes % 2 === 0) return at + 1;
  }
  return text.length;
}

/** The item begins at its first character, so that messages show its position. */
function trim(text: string, start: number, end: number): { start: number; end: number } {
  const first = /\S/g;
  first.lastIndex = start;
  return { start: first.exec(text)?.index ?? end, end };
}
