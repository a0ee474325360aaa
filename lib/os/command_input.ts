/**
 * What is written to the standard input of a command.
 *
 * @module
 */

/**
 * Text, in pieces that are written as they come. With an AsyncIterable the input stays open until it
 * ends, or the command does: a tool that reads on keeps what it holds for so long, and sees the end of
 * its input also when this process is killed.
 */
export type CommandInput = string | Iterable<string> | AsyncIterable<string>;

const CHUNK_BYTES = 64 * 1024;

/** Writes the whole input; never rejects, so that the child is always waited for. */
export async function writeInput(
  child: Deno.ChildProcess,
  input: CommandInput | undefined,
): Promise<{ failure?: unknown }> {
  if (input === undefined) return {};
  const writer = child.stdin.getWriter();
  try {
    if (typeof input !== "string" && Symbol.asyncIterator in input) {
      await writeAsItComes(child, writer, input);
    } else {
      for (const chunk of encodeInChunks(typeof input === "string" ? [input] : input)) {
        await writer.write(chunk);
      }
    }
    await writer.close();
    return {};
  } catch (failure) {
    // The tool ended before it read everything: its exit code and its words say why.
    if (failure instanceof Deno.errors.BrokenPipe) return {};
    // The text could not be made to its end. Killed before its input is closed: a tool that saw the
    // end of half a text would apply that half.
    tryKill(child, "SIGKILL");
    await child.status;
    await writer.abort(failure).catch(() => {});
    return { failure };
  }
}

/** Sends a signal to a child, if it is still there. */
export function tryKill(child: Deno.ChildProcess, signal: Deno.Signal): void {
  try {
    child.kill(signal);
  } catch {
    // It has ended by itself meanwhile.
  }
}

/** A piece that never comes must not outlast the command. */
async function writeAsItComes(
  child: Deno.ChildProcess,
  writer: WritableStreamDefaultWriter<Uint8Array>,
  input: AsyncIterable<string>,
): Promise<void> {
  const pieces = input[Symbol.asyncIterator]();
  const ended = child.status.then((): IteratorResult<string, void> => ({
    done: true,
    value: undefined,
  }));
  for (;;) {
    const { done, value } = await Promise.race([pieces.next(), ended]);
    if (done) return;
    for (const chunk of encodeInChunks([value])) await writer.write(chunk);
  }
}

/** Pieces of text as UTF-8 in chunks of about 64 KiB. The buffer of a chunk is used again for the next. */
function* encodeInChunks(pieces: Iterable<string>): Generator<Uint8Array, void> {
  const encoder = new TextEncoder();
  const buffer = new Uint8Array(CHUNK_BYTES);
  let filled = 0;
  for (const piece of pieces) {
    let rest = piece;
    while (rest.length > 0) {
      const { read, written } = encoder.encodeInto(rest, buffer.subarray(filled));
      rest = rest.slice(read);
      filled += written;
      // A character that no longer fits is left to the next chunk whole.
      if (rest.length === 0) break;
      yield buffer.subarray(0, filled);
      filled = 0;
    }
  }
  if (filled > 0) yield buffer.subarray(0, filled);
}

/** About as much as a pipe takes at once. */
const PIECE_CHARACTERS = 65_536;

/** Joins lines, each with its end, to input in pieces of about 64 KiB. */
export function* inPieces(lines: Iterable<string>): Generator<string> {
  let piece = "";
  for (const line of lines) {
    piece += `${line}\n`;
    if (piece.length < PIECE_CHARACTERS) continue;
    yield piece;
    piece = "";
  }
  if (piece !== "") yield piece;
}
