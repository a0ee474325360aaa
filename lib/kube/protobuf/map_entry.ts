import type { MessageCursor } from "./message_cursor.ts";

/** The fields of an entry of a map of strings. */
const KEY = 0x0a;
const VALUE = 0x12;

const ENCODER = new TextEncoder();

/** Adds an entry of a map. Many objects share its names and values. */
export function readEntry(cursor: MessageCursor, former: unknown = {}): Record<string, string> {
  const found = former as Record<string, string>;
  const outer = cursor.enter();
  let [key, value] = ["", ""];
  while (cursor.next()) {
    if (cursor.fieldTag === KEY) key = cursor.sharedText();
    else if (cursor.fieldTag === VALUE) value = cursor.sharedText();
    else cursor.pass();
  }
  cursor.leave(outer);
  found[key] = value;
  return found;
}

/** As {@linkcode readEntry}, for a map of which only these names are read. */
export function readEntryOf(
  names: readonly string[],
): (cursor: MessageCursor, former: unknown) => Record<string, string> | undefined {
  const wanted = names.map((name) => ({ name, bytes: ENCODER.encode(name) }));
  return (cursor, former) => {
    const outer = cursor.enter();
    let name: string | undefined;
    // Most values are not read: only the place of this one is kept until the name is known.
    let valueAt: number | undefined;
    while (cursor.next()) {
      const { fieldTag: tag, pos } = cursor;
      cursor.pass();
      if (tag === KEY) name = wanted.find(({ bytes }) => endsWith(cursor, { pos, bytes }))?.name;
      else if (tag === VALUE) valueAt = pos;
    }
    cursor.leave(outer);
    if (name === undefined) return former as Record<string, string> | undefined;
    const found = (former ?? {}) as Record<string, string>;
    const { pos } = cursor;
    if (valueAt === undefined) {
      found[name] = "";
    } else {
      cursor.pos = valueAt;
      found[name] = cursor.text();
      cursor.pos = pos;
    }
    return found;
  };
}

/** Whether the value that begins at `pos` and ends at the cursor is this text. */
function endsWith(
  { source, pos: end }: MessageCursor,
  { pos, bytes }: { readonly pos: number; readonly bytes: Uint8Array },
): boolean {
  const from = end - bytes.length;
  // Names are shorter than 128 bytes or take two bytes for their length.
  if (from - pos !== (bytes.length < 128 ? 1 : 2)) return false;
  for (let at = bytes.length - 1; at >= 0; at--) {
    if (source[from + at] !== bytes[at]) return false;
  }
  return true;
}
