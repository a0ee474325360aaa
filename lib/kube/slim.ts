/**
 * Reduces raw objects of the API to the fields that their kind's schema names, as each object
 * arrives: 10,000 raw Services with their `managedFields` would take ten times the memory.
 *
 * @module
 */
import { type KindSpec, type KubeObject, objectKey, type ObjectMeta } from "../api/kind.ts";
import type { ObjectProblem } from "../api/problem.ts";
import {
  type Cursor,
  type Field,
  type Mark,
  type Reading,
  readObject,
  type Shape,
  ShapeError,
  type Texts,
  WANTED,
  within,
} from "./object_reader.ts";
import { ProtobufObject } from "./protobuf.ts";
import type { StringTable } from "./string_table.ts";

/** Maximum length of a value in a problem. */
const LONGEST_VALUE = 80;

/**
 * Reduces one raw object; `strings` shares one copy of repeated strings. Returns `undefined` and reports a problem if a field has the wrong type;
 * an API server sends no such object, but a webhook or proxy might. Where the schema is guarded, only
 * the field is left out: its name is in the `unknownFields` of what contains it. `isKnown`: whether the
 * object of a key has a former state, which stays.
 */
export function slimObject<T extends KubeObject>(
  spec: KindSpec<T>,
  raw: unknown,
  { strings, onProblem, isKnown }: {
    readonly strings: StringTable;
    readonly onProblem: (problem: ObjectProblem) => void;
    readonly isKnown?: (key: string) => boolean;
  },
): T | undefined {
  const errors: ShapeError[] = [];
  try {
    const reading = { strings, errors };
    const cursor = raw instanceof ProtobufObject
      ? raw.begin(reading)
      : new JsonCursor(raw, reading);
    const object = readObject(spec.schema, cursor) as T;
    for (const error of errors) {
      onProblem(toProblem(spec.kind, raw, error, UNREAD));
    }
    return object;
  } catch (error) {
    if (!(error instanceof ShapeError)) throw error;
    const consequence = isKnown?.(keyOf(raw) ?? "")
      ? "The former state of the object stays in use"
      : "The object is left out";
    onProblem(toProblem(spec.kind, raw, error, consequence));
    return undefined;
  }
}

const UNREAD = "The field is not read, and what it belongs to allows nothing";

function toProblem(
  kind: string,
  raw: unknown,
  error: ShapeError,
  consequence: string,
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

/** Returns the metadata of a raw object, in JSON or protobuf, if any; bookmarks have no name. */
export function metadataOf(raw: unknown): Partial<ObjectMeta> {
  if (raw instanceof ProtobufObject) return raw.metadata();
  if (typeof raw !== "object" || raw === null || !("metadata" in raw)) return {};
  const { metadata } = raw;
  return typeof metadata === "object" && metadata !== null ? metadata as ObjectMeta : {};
}

/** Returns the key of a raw object, which may not be readable otherwise; `undefined` without a name. */
export function keyOf(raw: unknown): string | undefined {
  const metadata = metadataOf(raw);
  if (typeof metadata.name !== "string" || metadata.name === "") return undefined;
  return objectKey({ metadata: metadata as ObjectMeta });
}

const NOTHING: readonly unknown[] = [];

/** The place of the current field in an object. */
interface Frame {
  object: Readonly<Record<string, unknown>>;
  /** The index of the next field in the shape. */
  at: number;
  /** The list in the current field, and the index of its next item. */
  list: readonly unknown[];
  item: number;
}

/** A value of JSON, and the objects around it. */
class JsonCursor implements Cursor {
  readonly hasZeros = false;
  items = 0;
  readonly #frames: Frame[] = [];
  #depth = -1;
  #value: unknown;

  /** Throws a ShapeError for a value that is not an object. */
  constructor(value: unknown, readonly reading: Reading) {
    this.#value = value;
    this.enter();
  }

  enter(): number {
    const value = this.#value;
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw this.#wrong(WANTED.fields);
    }
    const object = value as Frame["object"];
    const frame = this.#frames[this.#depth + 1];
    if (frame === undefined) {
      this.#frames.push({ object, at: 0, list: NOTHING, item: 0 });
    } else {
      frame.object = object;
      frame.list = NOTHING;
      frame.at = frame.item = 0;
    }
    return this.#depth++;
  }

  leave(outer: number): void {
    this.#depth = outer;
  }

  abandon(outer: number): void {
    this.#depth = outer;
  }

  mark(): Mark {
    return { depth: this.#depth };
  }

  reset({ depth }: Mark): void {
    this.#depth = depth as number;
  }

  next({ fields }: Shape, unknown?: Set<string>): Field | undefined {
    const frame = this.#frames[this.#depth]!;
    if (frame.item < frame.list.length) {
      this.#value = frame.list[frame.item++];
      return fields[frame.at - 1];
    }
    while (frame.at < fields.length) {
      const field = fields[frame.at++]!;
      const value = this.#value = frame.object[field.name] ?? undefined;
      if (value === undefined) continue;
      frame.list = NOTHING;
      frame.item = 0;
      if (field.type !== "list" || !Array.isArray(value)) return field;
      if (value.length === 0) return field;
      frame.list = value;
      frame.item = 1;
      this.#value = value[0];
      return field;
    }
    if (unknown !== undefined) this.#addUnknown(fields, unknown);
    return undefined;
  }

  #addUnknown(fields: readonly Field[], unknown: Set<string>): void {
    for (const [name, value] of Object.entries(this.#frames[this.#depth]!.object)) {
      if (value === null || value === undefined) continue;
      if (!fields.some((field) => field.name === name)) unknown.add(name);
    }
  }

  check({ type }: Field): void {
    if (type === "list" && !this.hasItem() && !Array.isArray(this.#value)) {
      throw this.#wrong(WANTED.list);
    }
  }

  hasItem(): boolean {
    return this.#frames[this.#depth]!.item > 0;
  }

  /** The rest of a list, too. */
  pass(): void {
    const frame = this.#frames[this.#depth]!;
    frame.item = frame.list.length;
  }

  text(isShared: boolean, wanted: string): string {
    const value = this.#value;
    if (typeof value !== "string") throw this.#wrong(wanted);
    return isShared ? this.reading.strings.intern(value) : value;
  }

  time(format: "time" | "micro time"): string {
    return this.text(format === "time", "a string");
  }

  number(): number {
    if (typeof this.#value === "number") return this.#value;
    throw this.#wrong(WANTED.number);
  }

  flag(): boolean {
    if (typeof this.#value === "boolean") return this.#value;
    throw this.#wrong(WANTED.flag);
  }

  numberOrText(): number | string {
    return typeof this.#value === "string" ? this.text(true, "") : this.number();
  }

  entries(names: readonly string[] | "all"): Texts | undefined {
    const outer = this.enter();
    let found: Texts | undefined;
    const { object } = this.#frames[this.#depth]!;
    const { strings } = this.reading;
    const isAll = names === "all";
    for (const name of isAll ? Object.keys(object) : names) {
      const value = this.#value = object[name];
      if (!isAll && (value ?? undefined) === undefined) continue;
      if (typeof value !== "string") throw within(name, this.#wrong("a string"));
      found ??= {};
      if (isAll) found[strings.intern(name)] = strings.intern(value);
      else found[name] = value;
    }
    this.leave(outer);
    return found;
  }

  #wrong(wanted: string): ShapeError {
    return new ShapeError("", this.#value, wanted);
  }
}
