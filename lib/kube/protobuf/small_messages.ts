import { WireType } from "@bufbuild/protobuf/wire";
import { FlagObjects, ShapeError, WANTED } from "../shape_error.ts";
import type { MessageCursor } from "./message_cursor.ts";

/** Returns a reader of a message that has only flags, which gives one object for equal flags. */
export function flagsReader(
  entries: readonly { readonly name: string; readonly fieldNumber?: number }[],
): (cursor: MessageCursor) => unknown {
  const objects = new FlagObjects(entries.map(({ name }) => name));
  const places: (number | undefined)[] = [];
  for (const [index, { fieldNumber }] of entries.entries()) {
    if (fieldNumber !== undefined) places[fieldNumber] = 3 ** index;
  }
  return (cursor) => {
    const outer = cursor.enter();
    let digits = 0;
    while (cursor.next()) {
      const place = places[cursor.fieldTag >>> 3];
      if (place === undefined) {
        cursor.pass();
      } else {
        const wireType = cursor.fieldTag & 7;
        if (wireType !== WireType.Varint) {
          throw new ShapeError("", `wire type ${wireType}`, WANTED.flag);
        }
        const former = Math.floor(digits / place) % 3;
        digits += place * ((cursor.bool() ? 2 : 1) - former);
      }
    }
    cursor.leave(outer);
    return objects.of(digits);
  };
}

/** Reads an `IntOrString`. */
export function readIntOrString(cursor: MessageCursor): number | string {
  const outer = cursor.enter();
  let [type, number, text] = [0, 0, ""];
  while (cursor.next()) {
    if (cursor.fieldTag === 8) type = cursor.int32();
    else if (cursor.fieldTag === 16) number = cursor.int32();
    else if (cursor.fieldTag === 26) text = cursor.sharedText();
    else cursor.pass();
  }
  cursor.leave(outer);
  return type === 1 ? text : number;
}
