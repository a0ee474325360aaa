/**
 * Compiles the schema of a kind to a reader of the fields that it names. One reader serves JSON and
 * protobuf: a {@linkcode Cursor} moves through the values of either.
 *
 * @module
 */
import type * as v from "valibot";
import { type SchemaNode, schemaNode } from "../api/schema_node.ts";
import { MAX_VALUES } from "./json_text.ts";
import { StringTable } from "./string_table.ts";

/** A field whose type differs from the API's. */
export class ShapeError extends TypeError {
  /** `path` of the field, e.g. `spec.ports[1].port`. */
  constructor(public path: string, readonly value: unknown, readonly wanted: string) {
    super();
  }
}

/** One reading of an object. */
export interface Reading {
  readonly strings: StringTable;
  /** The fields of guarded objects that have the wrong type. */
  readonly errors: ShapeError[];
}

/** Starts a reading that shares no strings with others. */
export function startReading(): Reading {
  return { strings: new StringTable(), errors: [] };
}

/** What a field has to be, for messages. */
export const WANTED: Readonly<Record<SchemaNode["type"], string>> = {
  text: "a string that is not empty",
  number: "a number",
  flag: "true or false",
  "number or text": "a number or a string",
  list: "a list",
  names: "an object",
  fields: "an object",
};

/** Prepends a field's name to the path of an error, so that paths only cost time after an error. */
export function within(name: string, error: ShapeError): ShapeError {
  const { path } = error;
  if (name !== "") {
    error.path = path === "" || path.startsWith("[") ? name + path : `${name}.${path}`;
  }
  return error;
}

/** A place between the values of an object, for {@linkcode Cursor.reset}. */
export type Mark = Readonly<Record<string, unknown>>;

/**
 * Moves through an object. Its methods read the value of the current field; they throw a
 * {@linkcode ShapeError} for one of the wrong type, or an Error with the reason why the bytes are damaged.
 */
export interface Cursor {
  readonly reading: Reading;
  /** Whether empty text, 0 and false may stand for an absent field. */
  readonly hasZeros: boolean;
  /** Items of lists that were read of the object. */
  items: number;
  /** Enters the object at the cursor; returns the outer place for {@linkcode leave}. */
  enter(): unknown;
  /** Throws an Error if the object was not read to its end exactly. */
  leave(outer: unknown): void;
  /** Leaves an object that cannot be read, from any place inside it. */
  abandon(outer: unknown, beginning: Mark): void;
  /**
   * Moves to the next known field, or to the next item of a list; `undefined` at the end of the object.
   * Passes over other fields, and adds their names to `unknown`.
   */
  next(shape: Shape, unknown?: Set<string>): Field | undefined;
  /** Throws a ShapeError if the value is certainly not one of the field. */
  check(field: Field): void;
  /** Whether a list has an item here, and is not empty. */
  hasItem(): boolean;
  /** Passes over the value of the field. */
  pass(): void;
  mark(): Mark;
  reset(mark: Mark): void;
  /** `wanted` is what the field has to be. */
  text(isShared: boolean, wanted: string): string;
  /** Reads a time as RFC 3339; `undefined` = there is none. */
  time(format: "time" | "micro time"): string | undefined;
  number(): number;
  flag(): boolean;
  numberOrText(): number | string;
  /** Reads a map of texts, or its next entry, into `found`; `undefined` while it has none of the names. */
  entries(names: readonly string[] | "all", found: Texts | undefined): Texts | undefined;
}

/** Labels, annotations and the like. */
export type Texts = Record<string, string>;

/** Reads the value at the cursor. `former` is what was read of the same field before. */
type Reader = (cursor: Cursor, former: unknown) => unknown;

/** A field of an object. */
export interface Field {
  readonly name: string;
  readonly type: SchemaNode["type"];
  /** Whether it is a number in protobuf, and neither text nor a message. */
  readonly isVarint: boolean;
  readonly read: Reader;
  /** Completes what was read of all values of the field. */
  readonly finish: ((value: unknown, strings: StringTable) => unknown) | undefined;
  readonly keepsZero: boolean;
  /** The value of an absent field; `undefined` = it stays absent. */
  readonly fallback: unknown;
  /** Whether its absence is a problem. */
  readonly isRequired: boolean;
  /** The value of the digit that stands for the field among flags. */
  readonly place: number;
}

/** The fields of an object. */
export interface Shape {
  readonly fields: readonly Field[];
  /** By their number in protobuf. */
  readonly byNumber: readonly (Field | undefined)[];
  /** Those for which there is something to do at the end of the object. */
  readonly completed: readonly Field[];
}

const SHAPES = new WeakMap<v.GenericSchema, Shape>();

/**
 * Reads the object into which the cursor was moved. Throws a ShapeError for a field that cannot be read;
 * where the schema is guarded, it is added to the errors of the reading instead.
 */
export function readObject(schema: v.GenericSchema, cursor: Cursor): unknown {
  let shape = SHAPES.get(schema);
  if (shape === undefined) {
    const { node } = schemaNode(schema);
    if (node.type !== "fields") throw new TypeError(`Cannot read an object of type '${node.type}'`);
    shape = shapeOf(node.entries);
    SHAPES.set(schema, shape);
  }
  return readFields(cursor, shape);
}

function shapeOf(entries: Readonly<Record<string, v.GenericSchema>>): Shape {
  const byNumber: Field[] = [];
  const fields = Object.entries(entries).map(([name, schema], index): Field => {
    const { node, isOptional, fallback, keepsZero = !isOptional, fieldNumber } = schemaNode(schema);
    const isList = node.type === "list";
    const field = {
      name,
      type: node.type,
      isVarint: node.type === "number" || node.type === "flag",
      read: readerOf(node, !isOptional),
      finish: finishOf(node),
      keepsZero,
      // Servers leave empty lists out, required or not.
      fallback: fallback ?? (isList && !isOptional ? [] : undefined),
      isRequired: !isOptional && !isList,
      place: 3 ** index,
    };
    if (fieldNumber !== undefined) byNumber[fieldNumber] = field;
    return field;
  });
  const completed = fields.filter(({ isRequired, fallback, finish }) =>
    isRequired || fallback !== undefined || finish !== undefined
  );
  return { fields, byNumber, completed };
}

/** Returns a reader without any schema in it, because it runs for every field of every object. */
function readerOf(node: SchemaNode, isRequired: boolean): Reader {
  switch (node.type) {
    case "text": {
      const { format, isShared } = node;
      if (format === "time" || format === "micro time") return (cursor) => cursor.time(format);
      if (!isRequired) return (cursor) => cursor.text(isShared, "a string");
      return (cursor) => {
        const text = cursor.text(isShared, WANTED.text);
        if (text === "") throw new ShapeError("", text, WANTED.text);
        return text;
      };
    }
    case "number":
      return (cursor) => cursor.number();
    case "flag":
      return (cursor) => cursor.flag();
    case "number or text":
      return (cursor) => cursor.numberOrText();
    case "list":
      return itemReader(readerOf(schemaNode(node.item).node, false));
    case "names": {
      const { names } = node;
      return (cursor, former) => cursor.entries(names, former as Texts);
    }
    case "fields": {
      const shape = shapeOf(node.entries);
      if (node.isGuarded) return (cursor) => readGuarded(cursor, shape);
      const areFlags = shape.fields.length > 0 &&
        shape.fields.every(({ type, isRequired }) => type === "flag" && !isRequired);
      if (areFlags) return flagsReader(shape);
      return (cursor) => {
        const outer = cursor.enter();
        const found = readFields(cursor, shape);
        cursor.leave(outer);
        return isRequired || hasFields(found) ? found : undefined;
      };
    }
  }
}

function finishOf(node: SchemaNode): Field["finish"] {
  if (node.type === "names" && node.names === "all") {
    return (value, strings) => strings.share(value);
  }
  if (node.type !== "list") return undefined;
  // A list that grew has room for more items, which would stay in memory.
  const copy = (value: unknown) => (value as unknown[]).slice();
  return node.isShared ? (value, strings) => strings.share(copy(value)) : copy;
}

/** Adds the item at the cursor to the former ones. */
function itemReader(read: Reader): Reader {
  return (cursor, former) => {
    const list = former as unknown[] | undefined ?? [];
    if (!cursor.hasItem()) return list;
    if (++cursor.items > MAX_VALUES) throw new RangeError(`more than ${MAX_VALUES} items`);
    const { errors } = cursor.reading;
    const { length } = errors;
    try {
      list.push(read(cursor, undefined) ?? {});
    } catch (error) {
      throw within(`[${list.length}]`, toShapeError(error));
    }
    if (errors.length > length) placeErrors(cursor.reading, length, `[${list.length - 1}]`);
    return list;
  };
}

function readFields(cursor: Cursor, shape: Shape): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  let name = "";
  try {
    for (let field = cursor.next(shape); field !== undefined; field = cursor.next(shape)) {
      name = field.name;
      readField(cursor, field, found);
      name = "";
    }
    for (const field of shape.completed) {
      name = field.name;
      complete(cursor, field, found);
    }
  } catch (error) {
    throw within(name, toShapeError(error));
  }
  return found;
}

/** Unlike Object.keys(), it makes no list. */
function hasFields(found: object): boolean {
  for (const name in found) if (Object.hasOwn(found, name)) return true;
  return false;
}

function readField(cursor: Cursor, field: Field, found: Record<string, unknown>): void {
  const { name, read, keepsZero } = field;
  cursor.check(field);
  const { errors } = cursor.reading;
  const { length } = errors;
  const value = read(cursor, found[name]);
  if (errors.length > length) placeErrors(cursor.reading, length, name);
  if (value === undefined) return;
  if (cursor.hasZeros && !keepsZero && (value === "" || value === 0 || value === false)) return;
  found[name] = value;
}

function complete(
  cursor: Cursor,
  { name, type, finish, isRequired, fallback }: Field,
  found: Record<string, unknown>,
): void {
  const value = found[name];
  if (value === undefined && isRequired) throw new ShapeError("", value, WANTED[type]);
  if (value !== undefined) {
    if (finish !== undefined) found[name] = finish(value, cursor.reading.strings);
  } else if (fallback !== undefined) {
    found[name] = fallback;
  }
}

/** Reads what it can, and adds the names of the fields that cannot be read or are not known. */
function readGuarded(cursor: Cursor, shape: Shape): unknown {
  const { errors } = cursor.reading;
  const found: Record<string, unknown> = {};
  const unread = new Set<string>();
  const unreadable = (name: string, error: unknown) => {
    errors.push(within(name, toShapeError(error)));
    if (name !== "") unread.add(name);
  };
  let outer: unknown;
  try {
    outer = cursor.enter();
  } catch (error) {
    if (!(error instanceof ShapeError)) throw error;
    unreadable("", error);
    return { unknownFields: [] };
  }
  const beginning = cursor.mark();
  try {
    for (;;) {
      const field = cursor.next(shape, unread);
      if (field === undefined) break;
      const mark = cursor.mark();
      try {
        if (unread.has(field.name)) cursor.pass();
        else readField(cursor, field, found);
      } catch (error) {
        unreadable(field.name, error);
        cursor.reset(mark);
        cursor.pass();
      }
    }
    cursor.leave(outer);
  } catch (error) {
    unreadable("", error);
    cursor.abandon(outer, beginning);
    return { unknownFields: [] };
  }
  for (const name of unread) delete found[name];
  for (const field of shape.completed) {
    try {
      if (!unread.has(field.name)) complete(cursor, field, found);
    } catch (error) {
      unreadable(field.name, error);
    }
  }
  const known = found["unknownFields"] as readonly string[] | undefined ?? [];
  if (unread.size > 0) found["unknownFields"] = [...known, ...unread];
  return found;
}

/**
 * Returns a reader that gives one frozen object for equal flags, such as the conditions of an endpoint.
 * A flag has the digit 0 when absent, 1 for false and 2 for true; the digits are a number to the base 3.
 */
function flagsReader(shape: Shape): Reader {
  const objects: unknown[] = [];
  return (cursor) => {
    const outer = cursor.enter();
    let digits = 0;
    let field = cursor.next(shape);
    try {
      for (; field !== undefined; field = cursor.next(shape)) {
        const { place } = field;
        cursor.check(field);
        digits += place * ((cursor.flag() ? 2 : 1) - Math.floor(digits / place) % 3);
      }
    } catch (error) {
      throw within(field?.name ?? "", toShapeError(error));
    }
    cursor.leave(outer);
    if (digits === 0) return undefined;
    return objects[digits] ??= Object.freeze(Object.fromEntries(
      shape.fields.flatMap(({ name, place }) => {
        const digit = Math.floor(digits / place) % 3;
        return digit === 0 ? [] : [[name, digit === 2]];
      }),
    ));
  };
}

/** Prepends a name to the errors since `from`. */
function placeErrors({ errors }: Reading, from: number, name: string): void {
  for (let at = from; at < errors.length; at++) within(name, errors[at]!);
}

function toShapeError(error: unknown): ShapeError {
  if (error instanceof ShapeError) return error;
  // A TypeError is a fault of this program.
  if (!(error instanceof Error) || error instanceof TypeError) throw error;
  return new ShapeError("", error.message, "intact protobuf");
}
