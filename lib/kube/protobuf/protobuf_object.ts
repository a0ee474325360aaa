import * as v from "valibot";
import type { ObjectMeta } from "../../api/kind.ts";
import { at, fields, namedTexts, text } from "../../api/schema.ts";
import type { Reading } from "../shape_error.ts";
import { StringTable } from "../string_table.ts";
import type { MessageCursor } from "./message_cursor.ts";
import { readMessage } from "./message_reader.ts";

/** An annotation of the bookmark that ends a streaming list. */
export const INITIAL_EVENTS_END = "k8s.io/initial-events-end";

/** What the events of a watch need of any object; bookmarks have no name. */
const ANY_OBJECT = fields({
  metadata: at(
    1,
    v.nullish(fields({
      name: at(1, v.nullish(text)),
      namespace: at(3, v.nullish(text)),
      resourceVersion: at(6, v.nullish(text)),
      annotations: at(12, namedTexts([INITIAL_EVENTS_END])),
    })),
  ),
});

/** An object in protobuf. It has to be read before its bytes are used for the next one. */
export class ProtobufObject {
  readonly #cursor: MessageCursor;
  readonly #from: number;
  readonly #to: number;

  constructor(cursor: MessageCursor, { from, to }: { readonly from: number; readonly to: number }) {
    this.#cursor = cursor;
    this.#from = from;
    this.#to = to;
  }

  /** Reads the fields of a schema. Throws a ShapeError for a field that cannot be read. */
  read(schema: v.GenericSchema, reading: Reading): unknown {
    const cursor = this.#cursor;
    cursor.pos = this.#from;
    cursor.end = this.#to;
    cursor.items = 0;
    cursor.reading = reading;
    return readMessage(schema, cursor);
  }

  /** Returns the metadata that the events of a watch need; empty if it cannot be read. */
  metadata(): Partial<ObjectMeta> {
    try {
      const found = this.read(ANY_OBJECT, { strings: new StringTable(), errors: [] });
      return (found as { metadata?: Partial<ObjectMeta> }).metadata ?? {};
    } catch {
      return {};
    }
  }
}
