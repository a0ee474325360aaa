/**
 * Fields of API objects that cannot be read, in JSON and in protobuf.
 *
 * @module
 */
import type { SchemaNode } from "../api/schema_node.ts";
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

/** Prepends a field's name to the errors since `from`. */
export function placeErrors({ errors }: Reading, from: number, name: string): void {
  for (const error of errors.slice(from)) within(name, error);
}

/** Prepends a field's name to the path of an error, so that paths only cost time after an error. */
export function within(name: string, error: unknown): unknown {
  if (error instanceof ShapeError && name !== "") {
    const { path } = error;
    error.path = path === "" || path.startsWith("[") ? name + path : `${name}.${path}`;
  }
  return error;
}

/**
 * One frozen object for each combination of flags, such as the conditions of an endpoint. A flag has
 * the digit 0 when absent, 1 for false and 2 for true; the digits are a number to the base 3.
 */
export class FlagObjects {
  readonly #names: readonly string[];
  readonly #kept: unknown[] = [];

  constructor(names: readonly string[]) {
    this.#names = names;
  }

  /** Returns `undefined` if all flags are absent. */
  of(digits: number): unknown {
    if (digits === 0) return undefined;
    return this.#kept[digits] ??= Object.freeze(Object.fromEntries(
      this.#names.flatMap((name, index) => {
        const digit = Math.floor(digits / 3 ** index) % 3;
        return digit === 0 ? [] : [[name, digit === 2]];
      }),
    ));
  }
}
