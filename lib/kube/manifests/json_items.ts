/**
 * Finds the items of a list in JSON text without parsing it: what `kubectl get -o json` writes for
 * 10,000 Services would hold up the event loop for 100 ms.
 *
 * @module
 */
import { MAX_PLAIN_LENGTH } from "../../config/yaml_source.ts";

/** Where the items of a list stand in its text, and what to cut out to leave an empty list. */
export interface FoundItems {
  readonly start: number;
  readonly end: number;
  readonly items: readonly { readonly start: number; readonly end: number }[];
}

/** Characters after which the caller gets a chance to let others run. */
const STRIDE = 64 * 1024;

const NEXT_TOKEN = /["[\]{},]/g;

/**
 * The places of the entries of the top level's `items`; `undefined` when there is no such list, or
 * when the text ends before it does. Whether the entries are JSON is for the parser to say.
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

/** A string that nobody would read has no end. */
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    if (at - start > MAX_PLAIN_LENGTH) break;
    let backslashes = 0;
    while (text[at - 1 - backslashes] === "\\") backslashes++;
    if (backslashes % 2 === 0) return at + 1;
  }
  return text.length;
}

/** The item begins at its first character, so that its place in the file is the one to show. */
function trim(text: string, start: number, end: number): { start: number; end: number } {
  const first = /\S/g;
  first.lastIndex = start;
  return { start: first.exec(text)?.index ?? end, end };
}
