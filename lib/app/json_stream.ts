/**
 * A large value as JSON text in pieces, so that writing it never holds up the event loop.
 *
 * @module
 */
import { type Clock, systemClock } from "../os/clock.ts";

/** Pieces are about so long, in UTF-16 units; one takes well under a millisecond to make. */
const PIECE_LENGTH = 64 * 1024;

/** Levels that are walked: report, families, family, services. What lies deeper is small. */
const WALKED_LEVELS = 4;

/** Writes what `JSON.stringify()` writes, and yields to the event loop after each piece. */
export async function* jsonPieces(
  value: unknown,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): AsyncGenerator<string> {
  let piece = "";
  for (const token of tokens(value, WALKED_LEVELS)) {
    piece += token;
    if (piece.length < PIECE_LENGTH) continue;
    yield piece;
    piece = "";
    await clock.yieldToEventLoop();
  }
  yield piece;
}

function* tokens(value: unknown, levels: number): Generator<string> {
  if (levels === 0 || typeof value !== "object" || value === null) {
    yield JSON.stringify(value) ?? "null";
    return;
  }
  const isArray = Array.isArray(value);
  yield isArray ? "[" : "{";
  let separator = "";
  for (const [key, inner] of Object.entries(value)) {
    if (!isArray && inner === undefined) continue;
    yield isArray ? separator : `${separator}${JSON.stringify(key)}:`;
    yield* tokens(inner, levels - 1);
    separator = ",";
  }
  yield isArray ? "]" : "}";
}
