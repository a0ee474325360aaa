/**
 * Reads the output of a command line by line, without ever holding the whole of it.
 *
 * @module
 */

/** Longer lines are cut there: a program that writes none must not fill the memory. */
const LONGEST_LINE = 64 * 1024;

/** Takes a line without its end. While what it returns is pending, nothing more is read. */
export type LineTaker = (line: string) => Promise<void> | void;

/**
 * Hands each line to `take` until the stream ends or `cancel()` is called; the last one also without
 * a line feed. `done` resolves to what `take` threw, if it did; the stream is cancelled then.
 */
export function readLines(stream: ReadableStream<Uint8Array>, take: LineTaker): {
  readonly done: Promise<{ readonly failure?: unknown }>;
  readonly cancel: () => void;
} {
  const reader = stream.getReader();
  const read = async () => {
    try {
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        const lines = (rest + decoder.decode(value, { stream: !done })).split("\n");
        rest = lines.pop()!.slice(0, LONGEST_LINE);
        for (const line of lines) {
          // Most takers have nothing to wait for, and a turn for each line would cost more than they do.
          const taking = take(line);
          if (taking) await taking;
        }
        if (!done) continue;
        if (rest !== "") await take(rest);
        return {};
      }
    } catch (failure) {
      await reader.cancel().catch(() => {});
      return { failure };
    }
  };
  return { done: read(), cancel: () => void reader.cancel().catch(() => {}) };
}
