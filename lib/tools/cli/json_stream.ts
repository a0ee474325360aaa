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
  const isObject = typeof value === "object" && value !== null;
  const isLazy = isObject && !Array.isArray(value) && Symbol.iterator in value;
  if (!isObject || (levels === 0 && !isLazy)) {
    yield printableText(JSON.stringify(value) ?? "null");
    return;
  }
  let separator = "";
  if (Symbol.iterator in value) {
    yield "[";
    for (const entry of value as Iterable<unknown>) {
      yield separator;
      yield* tokens(entry, Math.max(levels, 1) - 1);
      separator = ",";
    }
    yield "]";
    return;
  }
  yield "{";
  for (const [key, inner] of Object.entries(value)) {
    if (inner === undefined) continue;
    yield `${separator}${printableText(JSON.stringify(key))}:`;
    yield* tokens(inner, levels - 1);
    separator = ",";
  }
  yield "}";
}
