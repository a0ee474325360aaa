import type * as v from "valibot";
import { redactText } from "../../log/redact.ts";
import { printableText } from "../../log/printable_text.ts";
import { foreignText, ownText, plainText } from "./dump_value.ts";

interface SchemaShape {
  readonly type: string;
  readonly entries?: Readonly<Record<string, v.GenericSchema>>;
  readonly item?: v.GenericSchema;
  readonly wrapped?: v.GenericSchema;
  readonly value?: v.GenericSchema;
}

/** Longer lists are copied while they are iterated. */
const SHORT = 64;

/**
 * Copies the fields that the schema names. Unlike parsing it refuses nothing: a damaged node must be able
 * to write a dump. Omits values of another type.
 */
export function pickAllowed(value: unknown, schema: v.GenericSchema): unknown {
  const { type, entries, item, wrapped, value: inner } = schema as unknown as SchemaShape;
  if (value === null || value === undefined) return value;
  if (type === "union") return pickScalar(value);
  if (wrapped) return pickAllowed(value, wrapped);
  if (entries) return pickFields(value, entries);
  if (item) return pickList(value, item);
  if (inner) return pickTable(value, inner);
  if (typeof value === "object") return undefined;
  return typeof value === "string" ? pickText(value, schema) : value;
}

/** Makes text printable that reading would refuse: one odd field must not make the dump useless. */
function pickText(value: string, schema: v.GenericSchema): string {
  if (schema === foreignText) return redactText(value);
  return schema === plainText || schema === ownText ? printableText(value) : value;
}

/** Copies a number, a flag or text, or a list of these. */
function pickScalar(value: unknown): unknown {
  if (Array.isArray(value)) return value.filter((each) => typeof each !== "object").map(pickScalar);
  return typeof value === "string"
    ? printableText(value)
    : typeof value === "object"
    ? undefined
    : value;
}

function pickFields(
  value: unknown,
  entries: Readonly<Record<string, v.GenericSchema>>,
): Record<string, unknown> {
  const picked: Record<string, unknown> = {};
  const given = value as Readonly<Record<string, unknown>>;
  for (const name of Object.keys(entries)) {
    if (given[name] === undefined) continue;
    picked[name] = pickAllowed(given[name], entries[name]!);
  }
  return picked;
}

function pickTable(value: unknown, inner: v.GenericSchema): Record<string, unknown> {
  const picked = Object.entries(value as object).map(([name, each]) => [
    name,
    pickAllowed(each, inner),
  ]);
  return Object.fromEntries(picked);
}

function pickList(value: unknown, item: v.GenericSchema): unknown {
  if (typeof value !== "object" || value === null || !(Symbol.iterator in value)) return undefined;
  const source = value as Iterable<unknown>;
  if (Array.isArray(source) && source.length <= SHORT) {
    return source.map((entry) => pickAllowed(entry, item));
  }
  function* entries(): Generator<unknown> {
    for (const entry of source) yield pickAllowed(entry, item);
  }
  return { [Symbol.iterator]: entries, toJSON: () => [...entries()] };
}
