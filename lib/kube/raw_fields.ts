/**
 * Reads fields of parsed JSON whose shape nobody has checked yet.
 *
 * @module
 */

/** A JSON object whose fields may be anything. */
export type RawFields = Readonly<Record<string, unknown>>;

/** A field that has another shape than it should. */
export class ShapeError extends TypeError {
  override name = "ShapeError";
  /** Path of the field, e.g. `spec.ports[1].port`. */
  path: string;

  constructor(path: string, readonly value: unknown, readonly wanted: string) {
    super();
    this.path = path;
  }

  override get message(): string {
    return `'${this.path}' is ${JSON.stringify(this.value)}: it has to be ${this.wanted}`;
  }
}

/** A string, or `undefined` when absent or null. */
export function optionalString(raw: RawFields, name: string): string | undefined {
  const value = raw[name] ?? undefined;
  if (value === undefined || typeof value === "string") return value;
  throw new ShapeError(name, value, "a string");
}

/** A string that must be there. */
export function requiredString(raw: RawFields, name: string): string {
  const value = raw[name];
  if (typeof value === "string" && value !== "") return value;
  throw new ShapeError(name, value, "a string that is not empty");
}

/** A number, or `undefined` when absent or null. */
export function optionalNumber(raw: RawFields, name: string): number | undefined {
  const value = raw[name] ?? undefined;
  if (value === undefined || typeof value === "number") return value;
  throw new ShapeError(name, value, "a number");
}

/** A number that must be there. */
export function requiredNumber(raw: RawFields, name: string): number {
  const value = raw[name];
  if (typeof value === "number") return value;
  throw new ShapeError(name, value, "a number");
}

/** true or false, or `undefined` when absent or null. */
export function optionalBoolean(raw: RawFields, name: string): boolean | undefined {
  const value = raw[name] ?? undefined;
  if (value === undefined || typeof value === "boolean") return value;
  throw new ShapeError(name, value, "true or false");
}

/** What `read` makes of an object, or `undefined` when absent or null. */
export function optionalObject<T>(
  raw: RawFields,
  name: string,
  read: (fields: RawFields) => T,
): T | undefined {
  const value = raw[name] ?? undefined;
  return value === undefined ? undefined : within(name, () => read(toFields(value)));
}

/** What `read` makes of an object that must be there. */
export function requiredObject<T>(
  raw: RawFields,
  name: string,
  read: (fields: RawFields) => T,
): T {
  return within(name, () => read(toFields(raw[name])));
}

/** What `read` makes of each entry of a list, or `undefined` when absent or null. */
export function optionalList<T>(
  raw: RawFields,
  name: string,
  read: (entry: unknown) => T,
): T[] | undefined {
  const value = raw[name] ?? undefined;
  if (value === undefined) return undefined;
  if (!Array.isArray(value)) throw new ShapeError(name, value, "a list");
  return value.map((entry, index) => within(`${name}[${index}]`, () => read(entry)));
}

/** The entry itself, for {@linkcode optionalList}. */
export function toText(entry: unknown): string {
  if (typeof entry === "string") return entry;
  throw new ShapeError("", entry, "a string");
}

/** The entry as an object, for {@linkcode optionalList}. */
export function toFields(entry: unknown): RawFields {
  if (typeof entry === "object" && entry !== null && !Array.isArray(entry)) {
    return entry as RawFields;
  }
  throw new ShapeError("", entry, "an object");
}

/** Puts `name` before the path of an error: paths cost nothing as long as nothing is wrong. */
function within<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof ShapeError) {
      error.path = error.path === "" || error.path.startsWith("[")
        ? name + error.path
        : `${name}.${error.path}`;
    }
    throw error;
  }
}

/** An object type in which what may be `undefined` is optional instead. */
type Present<T> =
  & { [K in keyof T as undefined extends T[K] ? never : K]: T[K] }
  & { [K in keyof T as undefined extends T[K] ? K : never]?: Exclude<T[K], undefined> };

/** The object without the fields that are `undefined`. */
export function present<T extends object>(object: T): Present<T> {
  const found: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(object)) if (value !== undefined) found[name] = value;
  return found as Present<T>;
}
