/**
 * Reads values that a schema of `dump_value.ts` allows, in less than half of the time that valibot
 * needs. Refuses everything else, so that valibot can name the reason. Pure.
 */
import * as v from "valibot";

/** The value is not allowed, or only the library can decide. */
export const REFUSED = Symbol("refused");

/** Returns the value as the schema converts it, or {@linkcode REFUSED}. */
type QuickReader = (value: unknown) => unknown;

/** The fields of a schema, or of a step of one, that the reader looks at. */
interface SchemaShape {
  readonly kind: string;
  readonly type: string;
  readonly entries?: Readonly<Record<string, v.GenericSchema>>;
  readonly item?: v.GenericSchema;
  readonly wrapped?: v.GenericSchema;
  readonly default?: unknown;
  readonly fallback?: unknown;
  readonly pipe?: readonly SchemaShape[];
  /** The requirement of a step of a pipe. */
  readonly requirement?: unknown;
}

/** Makes a reader. It accepts the same values as the library, with the same results. */
export function quickReader(schema: v.GenericSchema): QuickReader {
  const { type, entries, item, wrapped, pipe } = shapeOf(schema);
  if (!isPlain(schema)) return libraryReader(schema);
  if (pipe) return pipeReader(pipe) ?? libraryReader(schema);
  if (type === "object" && entries && Object.values(entries).every(isPlain)) {
    return objectReader(entries);
  }
  if (type === "array" && item) return arrayReader(quickReader(item));
  if (type === "exact_optional" && wrapped) return quickReader(wrapped);
  if (type === "nullable" && wrapped) {
    const read = quickReader(wrapped);
    return (value) => value === null ? null : read(value);
  }
  if (type === "string") return (value) => typeof value === "string" ? value : REFUSED;
  if (type === "boolean") return (value) => typeof value === "boolean" ? value : REFUSED;
  return libraryReader(schema);
}

function shapeOf(schema: v.GenericSchema): SchemaShape {
  return schema as unknown as SchemaShape;
}

/** Whether the schema requires a value and has no default. */
function isPlain(schema: v.GenericSchema): boolean {
  const { type, fallback, ...rest } = shapeOf(schema);
  return rest.default === undefined && fallback === undefined && type !== "optional" &&
    type !== "nullish";
}

function libraryReader(schema: v.GenericSchema): QuickReader {
  return (value) => {
    const result = v.safeParse(schema, value, { abortEarly: true, abortPipeEarly: true });
    return result.success ? result.output : REFUSED;
  };
}

function objectReader(entries: Readonly<Record<string, v.GenericSchema>>): QuickReader {
  const fields = Object.entries(entries).map(([name, schema]) => ({
    name,
    isOptional: schema.type === "exact_optional",
    read: quickReader(schema),
  }));
  return (value) => {
    if (typeof value !== "object" || value === null) return REFUSED;
    const given = value as Readonly<Record<string, unknown>>;
    const taken: Record<string, unknown> = {};
    for (const { name, isOptional, read } of fields) {
      if (!(name in given)) {
        if (isOptional) continue;
        return REFUSED;
      }
      const field = read(given[name]);
      if (field === REFUSED) return REFUSED;
      taken[name] = field;
    }
    return taken;
  };
}

function arrayReader(read: QuickReader): QuickReader {
  return (value) => {
    if (!Array.isArray(value)) return REFUSED;
    const taken: unknown[] = [];
    for (const each of value) {
      const item = read(each);
      if (item === REFUSED) return REFUSED;
      taken.push(item);
    }
    return taken;
  };
}

/** Text or a number with demands on it; `undefined` = there is another step. */
function pipeReader([base, ...steps]: readonly SchemaShape[]): QuickReader | undefined {
  const tests = steps.map(testOf);
  if (tests.some((test) => test === undefined)) return undefined;
  const demands = tests.filter((test) => test !== undefined);
  const [first = () => true, second = () => true] = demands;
  if (demands.length > 2) return undefined;
  if (base?.type === "string") {
    return (value) => typeof value === "string" && first(value) && second(value) ? value : REFUSED;
  }
  if (base?.type !== "number") return undefined;
  // NaN counts as no number, as in the library.
  return (value) =>
    typeof value === "number" && !Number.isNaN(value) && first(value) && second(value)
      ? value
      : REFUSED;
}

function testOf(
  { kind, type, requirement }: SchemaShape,
): ((value: string | number) => boolean) | undefined {
  if (kind !== "validation") return undefined;
  if (type === "regex" && requirement instanceof RegExp && !requirement.global) {
    return (value) => requirement.test(String(value));
  }
  if (type === "max_length" && typeof requirement === "number") {
    return (value) => String(value).length <= requirement;
  }
  if (type === "finite") return (value) => Number.isFinite(value);
  return undefined;
}
