/**
 * Reads messages in protobuf into the fields that a schema names, as `slim.ts` reads JSON.
 *
 * @module
 */
import { WireType } from "@bufbuild/protobuf/wire";
import type * as v from "valibot";
import { type SchemaNode, schemaNode } from "../../api/schema_node.ts";
import { MOST_VALUES } from "../json_text.ts";
import { placeErrors, ShapeError, WANTED, within } from "../shape_error.ts";
import { readEntry, readEntryOf } from "./map_entry.ts";
import type { MessageCursor } from "./message_cursor.ts";
import { flagsReader, readIntOrString } from "./small_messages.ts";
import { timeReader } from "./timestamp.ts";

/** Reads the value at the cursor. `former` is what was read of the same field before. */
type ValueReader = (cursor: MessageCursor, former: unknown) => unknown;

/** How the values of a field are read. */
interface FieldReader {
  readonly type: WireType;
  readonly read: ValueReader;
  /** Completes what was read of all values of the field. */
  readonly finish?: (value: unknown, cursor: MessageCursor) => unknown;
}

/** A field of a message. */
interface Field extends FieldReader {
  readonly name: string;
  readonly keepsZero: boolean;
  /** The value of an absent field; `undefined` = it stays absent. */
  readonly fallback: unknown;
  /** Whether its absence is a problem. */
  readonly isRequired: boolean;
  readonly wanted: string;
}

/** The fields of a message. */
interface Message {
  /** By field number. */
  readonly fields: readonly (Field | undefined)[];
  /** Those for which there is something to do at the end of the message. */
  readonly completed: readonly Field[];
}

const MESSAGES = new WeakMap<v.GenericSchema, Message>();

/**
 * Reads the message between the cursor and its end. Throws a ShapeError for a field that cannot be
 * read; where the schema is guarded, it is added to the errors of the reading instead.
 */
export function readMessage(schema: v.GenericSchema, cursor: MessageCursor): unknown {
  let message = MESSAGES.get(schema);
  if (message === undefined) {
    message = compileMessage(schemaNode(schema).node);
    MESSAGES.set(schema, message);
  }
  return readFields(cursor, message, { isRequired: true });
}

function compileMessage(node: SchemaNode): Message {
  if (node.type !== "fields") throw new TypeError(`Cannot read a message of type '${node.type}'`);
  const fields: Field[] = [];
  for (const [name, schema] of Object.entries(node.entries)) {
    const { fieldNumber } = schemaNode(schema);
    if (fieldNumber !== undefined) fields[fieldNumber] = toField(name, schema);
  }
  const completed = Object.values(fields).filter(({ isRequired, fallback, finish }) =>
    isRequired || fallback !== undefined || finish !== undefined
  );
  return { fields, completed };
}

function toField(name: string, schema: v.GenericSchema): Field {
  const { node, isOptional, fallback, keepsZero = !isOptional } = schemaNode(schema);
  const isList = node.type === "list";
  return {
    ...compile(node, { isRequired: !isOptional }),
    name,
    keepsZero,
    fallback: fallback ?? (isList && !isOptional ? [] : undefined),
    isRequired: !isOptional && !isList,
    wanted: WANTED[node.type],
  };
}

/** Compiles a reader without any schema in it, because it runs for every field of every object. */
function compile(
  node: SchemaNode,
  { isRequired }: { readonly isRequired: boolean },
): FieldReader {
  const type = WireType.LengthDelimited;
  switch (node.type) {
    case "text":
      if (node.format === "time" || node.format === "micro time") {
        return { type, read: timeReader(node.format) };
      }
      return { type, read: textReader({ isRequired, isShared: node.isShared }) };
    case "number":
      return { type: WireType.Varint, read: (cursor) => cursor.int32() };
    case "flag":
      return { type: WireType.Varint, read: (cursor) => cursor.bool() };
    case "number or text":
      return { type, read: readIntOrString };
    case "list":
      return compileList(node);
    case "names": {
      const { names } = node;
      return names === "all"
        ? { type, read: readEntry, finish: share }
        : { type, read: readEntryOf(names) };
    }
    case "fields":
      return { type, read: compileFields(node, { isRequired }) };
  }
}

function compileList(node: SchemaNode & { type: "list" }): FieldReader {
  const { type, read } = compile(schemaNode(node.item).node, { isRequired: false });
  return {
    type,
    read: (cursor, former = []) => {
      const list = former as unknown[];
      if (++cursor.items > MOST_VALUES) throw new RangeError(`more than ${MOST_VALUES} items`);
      const { errors } = cursor.reading;
      const { length } = errors;
      try {
        list.push(read(cursor, undefined) ?? {});
      } catch (error) {
        throw within(`[${list.length}]`, toShapeError(error));
      }
      if (errors.length > length) placeErrors(cursor.reading, length, `[${list.length - 1}]`);
      return list;
    },
    // A list that grew has room for more items, which would stay in memory.
    finish: (value, cursor) => {
      const list = (value as unknown[]).slice();
      return node.isShared ? share(list, cursor) : list;
    },
  };
}

function compileFields(
  node: SchemaNode & { type: "fields" },
  { isRequired }: { readonly isRequired: boolean },
): ValueReader {
  const entries = Object.entries(node.entries).map(([name, schema]) => ({
    name,
    ...schemaNode(schema),
  }));
  const areFlags = entries.length > 0 &&
    entries.every(({ node, isOptional }) => node.type === "flag" && isOptional);
  if (areFlags) return flagsReader(entries);
  const message = compileMessage(node);
  return (cursor) => {
    const outer = cursor.enter();
    const found = node.isGuarded
      ? readGuarded(cursor, message)
      : readFields(cursor, message, { isRequired });
    cursor.end = outer;
    return found;
  };
}

function readFields(
  cursor: MessageCursor,
  { fields, completed }: Message,
  { isRequired }: { readonly isRequired: boolean },
): unknown {
  const found: Record<string, unknown> = {};
  let name = "";
  try {
    while (cursor.next()) {
      const field = fields[cursor.fieldTag >>> 3];
      if (field === undefined) {
        cursor.pass();
      } else {
        name = field.name;
        readField(cursor, field, found);
        name = "";
      }
    }
    cursor.checkEnd();
    for (const field of completed) {
      name = field.name;
      complete(cursor, field, found);
    }
  } catch (error) {
    throw within(name, toShapeError(error));
  }
  return isRequired || hasFields(found) ? found : undefined;
}

/** Unlike Object.keys(), it makes no list. */
function hasFields(found: Record<string, unknown>): boolean {
  for (const name in found) if (Object.hasOwn(found, name)) return true;
  return false;
}

function readField(
  cursor: MessageCursor,
  { name, type, read, keepsZero, wanted }: Field,
  found: Record<string, unknown>,
): void {
  const wireType = cursor.fieldTag & 7;
  if (wireType !== type) throw new ShapeError("", `wire type ${wireType}`, wanted);
  const { errors } = cursor.reading;
  const { length } = errors;
  const value = read(cursor, found[name]);
  if (errors.length > length) placeErrors(cursor.reading, length, name);
  if (value === undefined || !keepsZero && (value === "" || value === 0 || value === false)) return;
  found[name] = value;
}

function complete(
  cursor: MessageCursor,
  { name, finish, isRequired, fallback, wanted }: Field,
  found: Record<string, unknown>,
): void {
  const value = found[name];
  if (value === undefined && isRequired) throw new ShapeError("", value, wanted);
  if (value === undefined) {
    if (fallback !== undefined) found[name] = fallback;
  } else if (finish !== undefined) {
    found[name] = finish(value, cursor);
  }
}

/** Reads what it can, and adds the names of the fields that cannot be read or are not known. */
function readGuarded(cursor: MessageCursor, { fields, completed }: Message): unknown {
  const found: Record<string, unknown> = {};
  const unread = new Set<string>();
  const { errors } = cursor.reading;
  const { end } = cursor;
  try {
    while (cursor.next()) {
      const { pos, fieldTag } = cursor;
      const field = fields[fieldTag >>> 3];
      if (field === undefined || unread.has(field.name)) {
        unread.add(field?.name ?? `field ${fieldTag >>> 3}`);
        cursor.pass();
        continue;
      }
      try {
        readField(cursor, field, found);
      } catch (error) {
        errors.push(within(field.name, toShapeError(error)) as ShapeError);
        unread.add(field.name);
        Object.assign(cursor, { pos, end, fieldTag });
        cursor.pass();
      }
    }
    cursor.checkEnd();
  } catch (error) {
    errors.push(toShapeError(error));
    cursor.pos = end;
    return { unknownFields: [] };
  }
  for (const name of unread) delete found[name];
  for (const field of completed) complete(cursor, field, found);
  if (unread.size > 0) found["unknownFields"] = [...unread];
  return found;
}

function textReader(
  { isRequired, isShared }: { readonly isRequired: boolean; readonly isShared: boolean },
): ValueReader {
  return (cursor) => {
    const read = isShared ? cursor.sharedText() : cursor.text();
    if (isRequired && read === "") throw new ShapeError("", read, WANTED.text);
    return read;
  };
}

function share(value: unknown, cursor: MessageCursor): unknown {
  return cursor.reading.strings.share(value);
}

function toShapeError(error: unknown): ShapeError {
  if (error instanceof ShapeError) return error;
  // A TypeError is a fault of this program.
  if (!(error instanceof Error) || error instanceof TypeError) throw error;
  return new ShapeError("", error.message, "intact protobuf");
}
