import { type Clock, systemClock } from "../../os/clock.ts";
import { printableText } from "../../log/printable_text.ts";
import { TimeSlice } from "../../os/time_slice.ts";

/** Length of a piece in UTF-16 units. */
const PIECE_LENGTH = 64 * 1024;

/** Levels in pieces: report, families, family, services. Deeper values are small. */
const WALKED_LEVELS = 4;

/**
 * Writes a large value as `JSON.stringify()` does, but in pieces, and yields to the event loop between them.
 * Any iterable becomes a list, whose entries are made one by one. Unprintable characters of values are
 * escaped, since the text may end on a terminal.
 */
export async function* jsonPieces(
  value: unknown,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): AsyncGenerator<string> {
  let piece = "";
  const slice = new TimeSlice(clock);
  for (const token of tokens(value, WALKED_LEVELS)) {
    piece += token;
    if (piece.length < PIECE_LENGTH) continue;
    yield piece;
    piece = "";
    await slice.pause();
  }
  yield piece;
}

function* tokens(value: unknown, levels: number): Generator<string> {
  if (isLazyList(value)) return yield* listTokens(value, Math.max(levels, 1));
  if (levels === 0 || typeof value !== "object" || value === null) {
    yield printableText(JSON.stringify(value) ?? "null");
    return;
  }
  if (Array.isArray(value)) return yield* listTokens(value, levels);
  yield "{";
  let separator = "";
  for (const [key, inner] of Object.entries(value)) {
    if (inner === undefined) continue;
    yield `${separator}${printableText(JSON.stringify(key))}:`;
    yield* tokens(inner, levels - 1);
    separator = ",";
  }
  yield "}";
}

function* listTokens(list: Iterable<unknown>, levels: number): Generator<string> {
  yield "[";
  let separator = "";
  for (const entry of list) {
    yield separator;
    yield* tokens(entry, levels - 1);
    separator = ",";
  }
  yield "]";
}

function isLazyList(value: unknown): value is Iterable<unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) &&
    Symbol.iterator in value;
}
