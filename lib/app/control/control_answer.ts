/** As for a dump, which is the longest answer: one of 10,000 Services has 15 MB. */
const MOST_BYTES = 256 * 1024 * 1024;
/** What is wrong takes a few lines. */
const MOST_BYTES_OF_REASON = 64 * 1024;

/** How many bytes an answer of this status may have. */
export function mostText(status: number): number {
  return status === 200 ? MOST_BYTES : MOST_BYTES_OF_REASON;
}

/** The text of an answer. Rejects with a RangeError after `mostBytes`. */
export async function answerText(
  { body }: Pick<Response, "body">,
  mostBytes: number,
): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let total = 0;
  for await (const bytes of body ?? []) {
    total += bytes.length;
    if (total > mostBytes) throw new RangeError(`its answer has more than ${mostBytes} bytes`);
    text += decoder.decode(bytes, { stream: true });
  }
  return text + decoder.decode();
}

/** The object or list that a text is, with lists in these fields; `undefined` where it is another. */
export function answeredObject(text: string, lists: readonly string[]): object | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const fields = new Map<string, unknown>(Object.entries(value));
  return lists.every((name) => Array.isArray(fields.get(name))) ? value : undefined;
}
