/**
 * Reduces raw objects of the API to the fields that their kind's schema names, as each object
 * arrives: 10,000 raw Services with their `managedFields` would take ten times the memory.
 *
 * @module
 */
import type * as v from "valibot";
import type { KindSpec, KubeObject } from "../api/kind.ts";
import { type SchemaNode, schemaNode } from "../api/schema_node.ts";
import type { ObjectProblem } from "../api/problem.ts";
import { ProtobufObject } from "./protobuf/protobuf_object.ts";
import { keyOf, metadataOf } from "./raw_object.ts";
import {
  FlagObjects,
  placeErrors,
  type Reading,
  ShapeError,
  WANTED,
  within,
} from "./shape_error.ts";
import type { StringTable } from "./string_table.ts";

type RawFields = Readonly<Record<string, unknown>>;

/** Dependencies of {@linkcode slimObject}. */
interface SlimOptions {
  /** Shares one copy of repeated strings. */
  readonly strings: StringTable;
  /** Called for an object that cannot be read. */
  readonly onProblem: (problem: ObjectProblem) => void;
  /** Whether the object of this key has a former state, which stays. @default {no} */
  readonly isKnown?: (key: string) => boolean;
}

/** Maximum length of a value in a problem. */
const LONGEST_VALUE = 80;

/**
 * Reduces one raw object. Returns `undefined` and reports a problem if a field has the wrong type;
 * an API server sends no such object, but a webhook or proxy might. Where the schema is guarded, only
 * the field is left out: its name is in the `unknownFields` of what contains it.
 */
export function slimObject<T extends KubeObject>(
  spec: KindSpec<T>,
  raw: unknown,
  { strings, onProblem, isKnown }: SlimOptions,
): T | undefined {
  const errors: ShapeError[] = [];
  try {
    const reading = { strings, errors };
    const object = (raw instanceof ProtobufObject
      ? raw.read(spec.schema, reading)
      : readerOf(spec)(raw, reading)) as T;
    for (const error of errors) {
      onProblem(toProblem(spec.kind, raw, { error, consequence: UNREAD }));
    }
    return object;
  } catch (error) {
    if (!(error instanceof ShapeError)) throw error;
    const consequence = isKnown?.(keyOf(raw) ?? "")
      ? "The former state of the object stays in use"
      : "The object is left out";
    onProblem(toProblem(spec.kind, raw, { error, consequence }));
    return undefined;
  }
}

const UNREAD = "The field is not read, and what it belongs to allows nothing";

/** Reads one present value. `undefined` stands for an object without fields to read. */
type Reader = (raw: unknown, reading: Reading) => unknown;

const READERS = new WeakMap<KindSpec, Reader>();

function readerOf(spec: KindSpec): Reader {
  const known = READERS.get(spec);
  if (known) return known;
  const reader = compile(schemaNode(spec.schema).node, { isRequired: true });
  READERS.set(spec, reader);
  return reader;
}

/** Compiles a reader without any schema in it, because it runs for every field of every object. */
function compile(node: SchemaNode, { isRequired }: { readonly isRequired: boolean }): Reader {
  switch (node.type) {
    case "text":
      return readText({ isRequired, isShared: node.isShared });
    case "number":
      return readNumber;
    case "flag":
      return readFlag;
    case "number or text":
      return (raw, { strings }) => typeof raw === "string" ? strings.intern(raw) : readNumber(raw);
    case "list": {
      const readItem = compile(schemaNode(node.item).node, { isRequired: false });
      const read: Reader = (raw, reading) => readList(raw, readItem, reading);
      return node.isShared ? (raw, reading) => reading.strings.share(read(raw, reading)) : read;
    }
    case "names": {
      const { names } = node;
      return names === "all"
        ? (raw, { strings }) => strings.share(readTexts(toFields(raw), strings))
        : (raw) => readNames(toFields(raw), names);
    }
    case "fields": {
      const fields = Object.entries(node.entries).map(toField);
      if (fields.length > 0 && fields.every(({ isFlag }) => isFlag)) {
        return readFlags(fields.map(({ name }) => name));
      }
      if (node.isGuarded) return (raw, reading) => readGuarded(raw, fields, reading);
      return (raw, reading) => readFields(toFields(raw), fields, { reading, isRequired });
    }
  }
}

interface Field {
  readonly name: string;
  readonly read: Reader;
  /** The value of an absent field; `undefined` = it stays absent. */
  readonly fallback: unknown;
  /** Whether its absence is a problem. */
  readonly isRequired: boolean;
  readonly wanted: string;
  readonly isFlag: boolean;
}

function toField([name, schema]: [string, v.GenericSchema]): Field {
  const { node, isOptional, fallback } = schemaNode(schema);
  const isList = node.type === "list";
  return {
    name,
    read: compile(node, { isRequired: !isOptional }),
    // Servers leave empty lists out, required or not.
    fallback: fallback ?? (isList && !isOptional ? [] : undefined),
    isRequired: !isOptional && !isList,
    wanted: WANTED[node.type],
    isFlag: node.type === "flag" && isOptional,
  };
}

function readFields(
  raw: RawFields,
  fields: readonly Field[],
  { reading, isRequired }: { readonly reading: Reading; readonly isRequired: boolean },
): unknown {
  const found: Record<string, unknown> = {};
  let isEmpty = !isRequired;
  let name = "";
  try {
    for (const field of fields) {
      name = field.name;
      const kept = readField(raw, field, reading);
      if (kept === undefined) continue;
      found[name] = kept;
      isEmpty = false;
    }
  } catch (error) {
    throw within(name, error);
  }
  return isEmpty ? undefined : found;
}

function readField(raw: RawFields, field: Field, reading: Reading): unknown {
  const value = raw[field.name] ?? undefined;
  if (value === undefined && field.isRequired) throw new ShapeError("", value, field.wanted);
  if (value === undefined) return field.fallback;
  const { length } = reading.errors;
  const kept = field.read(value, reading) ?? field.fallback;
  if (reading.errors.length > length) placeErrors(reading, length, field.name);
  return kept;
}

function readText(
  { isRequired, isShared }: { readonly isRequired: boolean; readonly isShared: boolean },
): Reader {
  return (raw, { strings }) => {
    if (typeof raw !== "string") {
      throw new ShapeError("", raw, isRequired ? WANTED.text : "a string");
    }
    if (isRequired && raw === "") throw new ShapeError("", raw, WANTED.text);
    return isShared ? strings.intern(raw) : raw;
  };
}

function readNumber(raw: unknown): number {
  if (typeof raw === "number") return raw;
  throw new ShapeError("", raw, WANTED.number);
}

function readFlag(raw: unknown): boolean {
  if (typeof raw === "boolean") return raw;
  throw new ShapeError("", raw, WANTED.flag);
}

function readList(raw: unknown, read: Reader, reading: Reading): readonly unknown[] {
  if (!Array.isArray(raw)) throw new ShapeError("", raw, WANTED.list);
  return raw.map((entry, index) => {
    try {
      const { length } = reading.errors;
      const kept = read(entry, reading) ?? {};
      if (reading.errors.length > length) placeErrors(reading, length, `[${index}]`);
      return kept;
    } catch (error) {
      throw within(`[${index}]`, error);
    }
  });
}

function readNames(raw: RawFields, names: readonly string[]): Record<string, string> | undefined {
  let found: Record<string, string> | undefined;
  for (const name of names) {
    const value = raw[name] ?? undefined;
    if (value === undefined) continue;
    if (typeof value !== "string") throw new ShapeError(name, value, "a string");
    found ??= {};
    found[name] = value;
  }
  return found;
}

/** Reads a whole map. Many objects share its names and values. */
function readTexts(raw: RawFields, strings: StringTable): Record<string, string> | undefined {
  const found: Record<string, string> = {};
  let isEmpty = true;
  for (const [name, value] of Object.entries(raw)) {
    if (typeof value !== "string") throw new ShapeError(name, value, "a string");
    found[strings.intern(name)] = strings.intern(value);
    isEmpty = false;
  }
  return isEmpty ? undefined : found;
}

/** Reads what it can, and adds the names of the fields that cannot be read or are not known. */
function readGuarded(raw: unknown, fields: readonly Field[], reading: Reading): unknown {
  const { errors } = reading;
  if (!isFields(raw)) {
    errors.push(new ShapeError("", raw, WANTED.fields));
    return { unknownFields: [] };
  }
  const found: Record<string, unknown> = {};
  const unread: string[] = [];
  for (const field of fields) {
    try {
      const kept = readField(raw, field, reading);
      if (kept !== undefined) found[field.name] = kept;
    } catch (error) {
      if (!(error instanceof ShapeError)) throw error;
      within(field.name, error);
      errors.push(error);
      unread.push(field.name);
    }
  }
  for (const [name, value] of Object.entries(raw)) {
    if (value === null || value === undefined) continue;
    if (!fields.some((field) => field.name === name)) unread.push(name);
  }
  const known = found["unknownFields"] as readonly string[] | undefined;
  if (unread.length > 0) found["unknownFields"] = [...known ?? [], ...unread];
  return found;
}

/** Reads an object of flags. */
function readFlags(names: readonly string[]): Reader {
  const objects = new FlagObjects(names);
  return (raw) => {
    const fields = toFields(raw);
    let [digits, place] = [0, 1];
    for (const name of names) {
      const value = fields[name] ?? undefined;
      if (value !== undefined && typeof value !== "boolean") {
        throw new ShapeError(name, value, WANTED.flag);
      }
      if (value !== undefined) digits += place * (value ? 2 : 1);
      place *= 3;
    }
    return objects.of(digits);
  };
}

function toFields(raw: unknown): RawFields {
  if (isFields(raw)) return raw;
  throw new ShapeError("", raw, WANTED.fields);
}

function isFields(raw: unknown): raw is RawFields {
  return typeof raw === "object" && raw !== null && !Array.isArray(raw);
}

function toProblem(
  kind: string,
  raw: unknown,
  { error, consequence }: { readonly error: ShapeError; readonly consequence: string },
): ObjectProblem {
  const { namespace, name } = metadataOf(raw);
  const names = [namespace, name].filter((part) => typeof part === "string");
  return {
    kind,
    object: names.join("/") || "(no name)",
    path: error.path,
    value: (JSON.stringify(error.value) ?? "undefined").slice(0, LONGEST_VALUE),
    message: `${consequence}: the field has to be ${error.wanted}`,
  };
}
