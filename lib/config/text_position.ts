import {
  type Document,
  isAlias,
  isMap,
  isPair,
  isScalar,
  isSeq,
  type LineCounter,
  type Node,
  type Pair,
} from "yaml";

/** A place in a text, both numbers from 1. */
export interface TextPosition {
  readonly line: number;
  readonly column: number;
}

/** Returns the offset of a field, or of its nearest existing parent. */
export function offsetOf(document: Document, path: readonly (string | number)[]): number {
  let node: unknown = document.contents;
  let offset = startOf(node);
  for (const step of path) {
    if (isAlias(node)) node = node.resolve(document);
    if (isMap(node)) {
      const pair = node.items.findLast((item) => keyOf(item) === String(step));
      if (!pair) break;
      offset = startOf(pair.key);
      node = pair.value;
    } else if (isSeq(node) && typeof step === "number" && step in node.items) {
      node = node.items[step];
      offset = startOf(node, offset);
    } else {
      break;
    }
  }
  return offset;
}

/** Returns the key of a pair as text. */
export function keyOf(pair: Pair): string {
  return String(isScalar(pair.key) ? pair.key.value : pair.key);
}

/** Returns the offset of a node, or of the key of a pair. */
export function startOf(item: unknown, otherwise = 0): number {
  const node = (isPair(item) ? item.key : item) as Node | null | undefined;
  return node?.range?.[0] ?? otherwise;
}

/** Returns the position of an offset. */
export function linePosition(lineCounter: LineCounter, offset: number): TextPosition {
  const { line, col } = lineCounter.linePos(offset);
  // The counter returns line 0 for an empty text.
  return { line: Math.max(1, line), column: Math.max(1, col) };
}

/** Returns a position in a file, for a text that starts at `origin` of the file. */
export function shift(position: TextPosition, origin: TextPosition | undefined): TextPosition {
  if (!origin) return position;
  return {
    line: position.line + origin.line - 1,
    column: position.line === 1 ? position.column + origin.column - 1 : position.column,
  };
}
