/**
 * Raw objects of the API → the fields that their kind's schema names. Done as each object arrives: 10,000
 * raw Services with their `managedFields` would take ten times the memory.
 *
 * @module
 */
import type * as v from "valibot";
import type { KindSpec, KubeObject } from "../api/kind.ts";
import { type SchemaNode, schemaNode } from "../api/schema.ts";
import type { ObjectProblem } from "../api/problem.ts";
import type { StringTable } from "./string_table.ts";

type RawFields = Readonly<Record<string, unknown>>;

/** A field of another type than it has in the API. */
class ShapeError extends TypeError {
  /** `path` of the field, e.g. `spec.ports[1].port`. */
  constructor(public path: string, readonly value: unknown, readonly wanted: string) {
    super();
  }
}

/** What {@linkcode slimObject} needs besides the object. */
interface SlimOptions {
  /** Keeps one copy of the strings that many objects share. */
  readonly strings: StringTable;
  /** Called for an object that cannot be read. */
  readonly onProblem: (problem: ObjectProblem) => void;
}

/** Most characters of a value that are shown in a problem. */
const LONGEST_VALUE = 80;

/**
 * Keeps what is read of one raw object. One whose fields have the wrong type gives `undefined` and a
 * problem; an API server sends no such object, a webhook or proxy in between might.
 */
export function slimObject<T extends KubeObject>(
  spec: KindSpec<T>,
  raw: unknown,
  { strings, onProblem }: SlimOptions,
): T | undefined {
  try {
    return readerOf(spec)(raw, strings) as T;
  } catch (error) {
    if (!(error instanceof ShapeError)) throw error;
    onProblem(toProblem(spec.kind, raw, error));
    return undefined;
  }
}

/** Reads one value, which is there. `undefined` stands for an object in which nothing is read. */
type Reader = (raw: unknown, strings: StringTable) => unknown;

const READERS = new WeakMap<KindSpec, Reader>();

function readerOf(spec: KindSpec): Reader {
  const known = READERS.get(spec);
  if (known) return known;
  const reader = compile(schemaNode(spec.schema).node, { isRequired: true });
  READERS.set(spec, reader);
  return reader;
}

/** A reader without any schema in it: this runs for every field of every object. */
function compile(node: SchemaNode, { isRequired }: { readonly isRequired: boolean }): Reader {
  switch (node.type) {
    case "text":
      return readText({ isRequired, isShared: node.isShared });
    case "number":
      return readNumber;
    case "flag":
      return readFlag;
    case "number or text":
      return (raw, strings) => typeof raw === "string" ? strings.intern(raw) : readNumber(raw);
    case "list": {
      const readItem = compile(schemaNode(node.item).node, { isRequired: false });
      const read: Reader = (raw, strings) =>
        readList(raw, (entry) => readItem(entry, strings) ?? {});
      return node.isShared ? (raw, strings) => strings.share(read(raw, strings)) : read;
    }
    case "names": {
      const { names } = node;
      return names === "all"
        ? (raw, strings) => strings.share(readTexts(toFields(raw), strings))
        : (raw) => readNames(toFields(raw), names);
    }
    case "fields": {
      const fields = Object.entries(node.entries).map(toField);
      if (fields.length > 0 && fields.every(({ isFlag }) => isFlag)) {
        return readFlags(fields.map(({ name }) => name));
      }
      const read: Reader = (raw, strings) =>
        readFields(toFields(raw), fields, { strings, isRequired: isRequired || node.isGuarded });
      return node.isGuarded ? readGuarded(node, read) : read;
    }
  }
}

interface Field {
  readonly name: string;
  readonly read: Reader;
  /** What stands for an absent field; `undefined` where it stays absent. */
  readonly fallback: unknown;
  /** Whether its absence is a problem. */
  readonly isRequired: boolean;
  readonly wanted: string;
  readonly isFlag: boolean;
}

const WANTED: Readonly<Record<SchemaNode["type"], string>> = {
  text: "a string that is not empty",
  number: "a number",
  flag: "true or false",
  "number or text": "a number or a string",
  list: "a list",
  names: "an object",
  fields: "an object",
};

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
  { strings, isRequired }: { readonly strings: StringTable; readonly isRequired: boolean },
): unknown {
  const found: Record<string, unknown> = {};
  let isEmpty = !isRequired;
  let name = "";
  try {
    for (const field of fields) {
      name = field.name;
      const value = raw[name] ?? undefined;
      if (value === undefined && field.isRequired) throw new ShapeError("", value, field.wanted);
      const kept = (value === undefined ? undefined : field.read(value, strings)) ?? field.fallback;
      if (kept === undefined) continue;
      found[name] = kept;
      isEmpty = false;
    }
  } catch (error) {
    throw within(name, error);
  }
  return isEmpty ? undefined : found;
}

function readText(
  { isRequired, isShared }: { readonly isRequired: boolean; readonly isShared: boolean },
): Reader {
  return (raw, strings) => {
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

function readList(raw: unknown, read: (entry: unknown) => unknown): readonly unknown[] {
  if (!Array.isArray(raw)) throw new ShapeError("", raw, WANTED.list);
  return raw.map((entry, index) => {
    try {
      return read(entry);
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

/** A whole map, of whose names and values many objects have the same. */
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

/** Adds the names of fields that the schema does not know. */
function readGuarded({ entries }: { readonly entries: object }, read: Reader): Reader {
  return (raw, strings) => {
    const found = read(raw, strings) as Record<string, unknown>;
    const unknown = Object.entries(toFields(raw)).flatMap(([name, value]) =>
      value === null || value === undefined || Object.hasOwn(entries, name) ? [] : [name]
    );
    if (unknown.length > 0) found["unknownFields"] = unknown;
    return found;
  };
}

/** One frozen object for each combination of flags, such as the conditions of an endpoint. */
function readFlags(names: readonly string[]): Reader {
  const kept: unknown[] = [];
  return (raw) => {
    const fields = toFields(raw);
    let index = 0;
    for (const name of names) {
      const value = fields[name] ?? undefined;
      if (value !== undefined && typeof value !== "boolean") {
        throw new ShapeError(name, value, WANTED.flag);
      }
      index = index * 3 + (value === undefined ? 0 : value ? 2 : 1);
    }
    if (index === 0) return undefined;
    const present = names.filter((name) => typeof fields[name] === "boolean");
    return kept[index] ??= Object.freeze(
      Object.fromEntries(present.map((name) => [name, fields[name]])),
    );
  };
}

function toFields(raw: unknown): RawFields {
  if (typeof raw === "object" && raw !== null && !Array.isArray(raw)) return raw as RawFields;
  throw new ShapeError("", raw, WANTED.fields);
}

/** Puts the name of a field before the path of an error: paths cost nothing as long as nothing is wrong. */
function within(name: string, error: unknown): unknown {
  if (error instanceof ShapeError) {
    const { path } = error;
    error.path = path === "" || path.startsWith("[") ? name + path : `${name}.${path}`;
  }
  return error;
}

function toProblem(kind: string, raw: unknown, error: ShapeError): ObjectProblem {
  const { metadata } = (raw ?? {}) as { metadata?: { name?: unknown; namespace?: unknown } };
  const names = [metadata?.namespace, metadata?.name].filter((part) => typeof part === "string");
  return {
    kind,
    object: names.join("/") || "(no name)",
    path: error.path,
    value: (JSON.stringify(error.value) ?? "undefined").slice(0, LONGEST_VALUE),
    message: `The object is left out: the field has to be ${error.wanted}`,
  };
}
