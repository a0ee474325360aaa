/** The destination of a text; the used part of `Deno.stdout`. */
interface TextStream {
  /** May write less than it was given. */
  writeSync(data: Uint8Array): number;
}

/** Writes all of a text. A reader that stops early, as in `status | head`, is not an error. */
export function writeText(stream: TextStream, text: string): void {
  let rest = new TextEncoder().encode(text);
  try {
    while (rest.length > 0) rest = rest.subarray(stream.writeSync(rest));
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}
