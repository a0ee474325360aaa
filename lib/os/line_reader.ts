/** Longer lines are cut: a program without line feeds must not fill the memory. */
const LONGEST_LINE = 64 * 1024;

/** Receives a line without its end. Reading pauses while the result is pending. */
export type LineTaker = (line: string) => Promise<void> | void;

/**
 * Passes each line to `take` until the stream ends or `cancel()` is called, including a last line
 * without a line feed. `done` resolves to the error of `take`, if any, which cancels the stream.
 * Never holds the whole output.
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
          // Most takers do not wait, and a turn for each line would cost more than their work.
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
