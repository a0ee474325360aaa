import { type Clock, systemClock } from "../../os/clock.ts";

/** Pieces are about so long, in UTF-16 units; one takes well under a millisecond to make. */
const PIECE_LENGTH = 64 * 1024;

/** Time between two turns of the event loop, in milliseconds. A turn costs one in which nothing is done. */
const SLICE_MS = 4;

/** Levels that are walked: report, families, family, services. What lies deeper is small. */
const WALKED_LEVELS = 4;

/**
 * Writes what `JSON.stringify()` writes, and yields to the event loop every few pieces. What can be
 * iterated is written as a list, of which an entry is asked for when it is its turn.
 */
export async function* jsonPieces(
  value: unknown,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): AsyncGenerator<string> {
  let piece = "";
  let sliceStart = clock.now();
  for (const token of tokens(value, WALKED_LEVELS)) {
    piece += token;
    if (piece.length < PIECE_LENGTH) continue;
    yield piece;
    piece = "";
    if (clock.now() - sliceStart < SLICE_MS) continue;
    await clock.yieldToEventLoop();
    sliceStart = clock.now();
  }
  yield piece;
}

function* tokens(value: unknown, levels: number): Generator<string> {
  if (isLazyList(value)) return yield* listTokens(value, Math.max(levels, 1));
  if (levels === 0 || typeof value !== "object" || value === null) {
    yield JSON.stringify(value) ?? "null";
    return;
  }
  if (Array.isArray(value)) return yield* listTokens(value, levels);
  yield "{";
  let separator = "";
  for (const [key, inner] of Object.entries(value)) {
    if (inner === undefined) continue;
    yield `${separator}${JSON.stringify(key)}:`;
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
