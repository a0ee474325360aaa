/**
 * Standard input of a command, in pieces. With an AsyncIterable the input stays open until it or
 * the command ends: a tool that reads on keeps its state until then, and sees the end of its input
 * even if this process is killed.
 */
export type CommandInput = string | Iterable<string> | AsyncIterable<string>;

const CHUNK_BYTES = 64 * 1024;
/** Of a code unit in UTF-8. */
const MOST_BYTES_OF_UNIT = 3;

/** Writes the whole input; never rejects, so that the caller always waits for the child. */
export async function writeInput(
  child: Deno.ChildProcess,
  input: CommandInput | undefined,
): Promise<{ failure?: unknown }> {
  if (input === undefined) return {};
  const writer = child.stdin.getWriter();
  try {
    if (isAsyncInput(input)) {
      await writeAsItComes(child, writer, input);
    } else {
      for (const chunk of encodeInChunks(typeof input === "string" ? [input] : input)) {
        await writer.write(chunk);
      }
    }
    await writer.close();
    return {};
  } catch (failure) {
    // The tool ended before it read everything: its exit code and its output give the reason.
    if (failure instanceof Deno.errors.BrokenPipe) return {};
    // The text is incomplete. The child is killed before its input is closed, because a tool that
    // sees the end of half a text would apply that half.
    tryKill(child, "SIGKILL");
    await child.status;
    await writer.abort(failure).catch(() => {});
    return { failure };
  }
}

/** Whether the pieces come later, one after the other. */
function isAsyncInput(input: CommandInput): input is AsyncIterable<string> {
  return typeof input !== "string" && Symbol.asyncIterator in input;
}

/** Sends a signal to a child, if it still runs. */
export function tryKill(child: Deno.ChildProcess, signal: Deno.Signal): void {
  try {
    child.kill(signal);
  } catch {
    // It has already ended.
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

/**
 * Encodes pieces of text as UTF-8 in chunks of about 64 KiB. Successive chunks share one buffer.
 */
function* encodeInChunks(pieces: Iterable<string>): Generator<Uint8Array, void> {
  const encoder = new TextEncoder();
  let buffer: Uint8Array | undefined;
  let filled = 0;
  for (const piece of pieces) {
    let rest = piece;
    while (rest.length > 0) {
      // Small for a few lines: to clear 64 KiB takes longer than to render them.
      buffer ??= new Uint8Array(Math.min(CHUNK_BYTES, MOST_BYTES_OF_UNIT * rest.length));
      const { read, written } = encoder.encodeInto(rest, buffer.subarray(filled));
      rest = rest.slice(read);
      filled += written;
      // A character that does not fit goes into the next chunk.
      if (rest.length === 0) break;
      yield buffer.subarray(0, filled);
      filled = 0;
      if (buffer.length < CHUNK_BYTES) buffer = new Uint8Array(CHUNK_BYTES);
    }
  }
  if (buffer && filled > 0) yield buffer.subarray(0, filled);
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
