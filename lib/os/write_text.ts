/**
 * Text to standard output and standard error.
 *
 * @module
 */

/** Where text goes; the part of `Deno.stdout` that is used. */
interface TextStream {
  /** May write less than it was given. */
  writeSync(data: Uint8Array): number;
}

/** Writes all of a text. A reader that has seen enough, as in `status | head`, is no failure. */
export function writeText(stream: TextStream, text: string): void {
  let rest = new TextEncoder().encode(text);
  try {
    while (rest.length > 0) rest = rest.subarray(stream.writeSync(rest));
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}
