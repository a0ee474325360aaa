/**
 * Reduces raw objects of the API to the fields that their kind's schema names, as each object
 * arrives: 10,000 raw Services with their `managedFields` would take ten times the memory.
 *
 * @module
 */
import { type KindSpec, type KubeObject, objectKey, type ObjectMeta } from "../api/kind.ts";
import type { ObjectProblem } from "../api/problem.ts";
import { JsonCursor } from "./json_cursor.ts";
import { readObject, ShapeError } from "./object_reader.ts";
import { ProtobufObject } from "./protobuf.ts";
import type { StringTable } from "./string_table.ts";

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
    const cursor = raw instanceof ProtobufObject
      ? raw.begin(reading)
      : new JsonCursor(raw, reading);
    const object = readObject(spec.schema, cursor) as T;
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
