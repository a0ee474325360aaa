import * as v from "valibot";
import type { ObjectMeta } from "../../api/kind.ts";
import { at, fields, namedTexts, text } from "../../api/schema.ts";
import { type Reading, startReading } from "../shape_error.ts";
import type { MessageCursor } from "./message_cursor.ts";
import { readMessage } from "./message_reader.ts";

/** An annotation of the bookmark that ends a streaming list. */
export const INITIAL_EVENTS_END = "k8s.io/initial-events-end";

/** The tag of the metadata of every object. */
const METADATA = 0x0a;

/** The metadata that the events of a watch need; bookmarks have no name. */
const ANY_METADATA = fields({
  name: at(1, v.nullish(text)),
  namespace: at(3, v.nullish(text)),
  resourceVersion: at(6, v.nullish(text)),
  annotations: at(12, namedTexts([INITIAL_EVENTS_END])),
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
    return readMessage(schema, this.#begin(reading));
  }

  /** Returns the metadata that the events of a watch need; empty if it cannot be read. */
  metadata(): Partial<ObjectMeta> {
    const cursor = this.#begin(startReading());
    try {
      while (cursor.next()) {
        if (cursor.fieldTag !== METADATA) {
          cursor.pass();
          continue;
        }
        cursor.enter();
        return readMessage(ANY_METADATA, cursor) as Partial<ObjectMeta>;
      }
      return {};
    } catch {
      return {};
    }
  }

  #begin(reading: Reading): MessageCursor {
    const cursor = this.#cursor;
    cursor.moveTo({ from: this.#from, to: this.#to });
    cursor.items = 0;
    cursor.reading = reading;
    return cursor;
  }
}
