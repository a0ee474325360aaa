/**
 * Reads a text file that may be anything.
 *
 * @module
 */

const CHUNK_BYTES = 64 * 1024;

/**
 * The text of a file, pipe or device, without a byte order mark. Rejects with a RangeError after
 * `maxBytes`: a wrong path may lead to a file of many gigabytes, or to one without end.
 */
export async function readTextUpTo(path: string, maxBytes: number): Promise<string> {
  using file = await Deno.open(path);
  const decoder = new TextDecoder();
  const chunk = new Uint8Array(CHUNK_BYTES);
  let text = "";
  let total = 0;
  for (;;) {
    const count = await file.read(chunk);
    if (count === null) return text + decoder.decode();
    total += count;
    if (total > maxBytes) {
      throw new RangeError(`it has more than ${maxBytes} bytes, which is the most that is read`);
    }
    text += decoder.decode(chunk.subarray(0, count), { stream: true });
  }
}
