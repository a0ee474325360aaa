/**
 * The parts that the schema of a configuration file is made of.
 *
 * @module
 */
import * as v from "valibot";
import { didYouMean } from "../api/nearest_name.ts";
import { tryParseDuration } from "../api/duration.ts";

/** The schema of one value, which may be absent. */
type Field<T> = v.GenericSchema<unknown, T>;

/** The values of the fields of a block. */
export type BlockValues<Entries extends v.ObjectEntries> = Frozen<Block<Entries>>;

type Block<Entries extends v.ObjectEntries> = v.InferOutput<v.ObjectSchema<Entries, undefined>>;

type Frozen<T> = T extends object ? { readonly [Key in keyof T]: Frozen<T[Key]> } : T;

/** Whether a zero in the file is a value or means the default. */
interface ZeroRule {
  readonly zero: "kept" | "default";
}

/** Text; empty text means the default. */
export function text(fallback = ""): Field<string> {
  return v.pipe(
    v.nullish(v.string(wanted("text")), fallback),
    v.transform((value) => value === "" ? fallback : value),
  );
}

/** True or false. */
export function flag(fallback = false): Field<boolean> {
  return v.nullish(v.boolean(wanted("true or false")), fallback);
}

/** A number. */
export function number(fallback: number, { zero }: ZeroRule = { zero: "kept" }): Field<number> {
  return v.pipe(
    v.nullish(v.number(wanted("a number")), fallback),
    v.transform((value) => value === 0 && zero === "default" ? fallback : value),
  );
}

/** A whole number of 32 bits with its sign. */
export function integer(fallback: number, rule: ZeroRule = { zero: "kept" }): Field<number> {
  return v.pipe(
    number(fallback, rule),
    v.integer(({ input }) => `Expected a whole number, found ${input}`),
    v.check(isInt32, ({ input }) => `Expected a number of 32 bits, found ${input}`),
  );
}

/** Upstream reads numbers as int32 and cannot decode larger ones. */
function isInt32(value: number): boolean {
  return value >= -(2 ** 31) && value < 2 ** 31;
}

/** A duration in Go's form, in milliseconds. */
export function duration(fallback: string, { zero }: ZeroRule = { zero: "kept" }): Field<number> {
  return v.pipe(
    v.nullish(v.string(wanted("a duration such as 30s or 1m30s, with its unit")), fallback),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const milliseconds = tryParseDuration(dataset.value);
      if (milliseconds === undefined) {
        addIssue({
          message: `Expected a duration such as 30s or 1m30s, found '${dataset.value}'`,
        });
        return NEVER;
      }
      const isDefault = milliseconds === 0 && zero === "default";
      return isDefault ? tryParseDuration(fallback)! : milliseconds;
    }),
  );
}

/** The only duration that upstream also accepts as a number, in nanoseconds. */
export function flushFrequency(): Field<number> {
  const expected = "Expected a duration such as 5s, or a whole number of nanoseconds";
  return v.pipe(
    v.nullish(v.union([v.number(), v.string()], expected), 0),
    v.transform((value) => {
      if (typeof value === "string") return tryParseDuration(value);
      return Number.isInteger(value) ? tryParseDuration(`${value}ns`) : undefined;
    }),
    v.number(expected),
    v.transform((milliseconds) => milliseconds === 0 ? 5_000 : milliseconds),
  );
}

/** A Kubernetes quantity, unparsed. */
export function quantity(): Field<string> {
  return v.nullish(
    v.union(
      [v.string(), v.pipe(v.number(), v.transform(String))],
      "Expected a quantity such as 0 or 64Ki",
    ),
    "0",
  );
}

/** A list of texts. */
export function list(): Field<string[]> {
  return v.nullish(
    v.array(v.string(wanted("text")), wanted("a list")),
    (): string[] => [],
  );
}

/** A block of fields, each with its default. */
export function group<Entries extends v.ObjectEntries>(entries: Entries): Field<Block<Entries>> {
  const block: Field<Block<Entries>> = v.object(entries, wanted("fields"));
  // An empty block gets the defaults of its fields.
  return v.nullish(block, {}) as Field<Block<Entries>>;
}

/** Number of characters of a wrong value that are shown. */
const LONGEST_SHOWN = 40;

/** Returns the message of a value with the wrong type. */
export function wanted(what: string): (issue: v.BaseIssue<unknown>) => string {
  return ({ input, received }) =>
    `Expected ${what}, found ${input === undefined ? "nothing" : shorten(received)}`;
}

/** The wrong file may be any file, and its content goes to a terminal and a log. */
function shorten(text: string): string {
  return text.length <= LONGEST_SHOWN ? text : `${text.slice(0, LONGEST_SHOWN)}…`;
}

/** A whole number from `from` to `to`. */
export function wholeNumber(
  fallback: number,
  { from, to }: { from: number; to: number },
): Field<number> {
  const message = ({ received }: v.BaseIssue<unknown>) =>
    `Expected a whole number from ${from} to ${to}, found ${shorten(received)}`;
  return v.pipe(
    v.nullish(v.number(message), fallback),
    v.check((value) => Number.isInteger(value) && value >= from && value <= to, message),
  );
}

/** A list of blocks, none of which may have an unknown field. Each may also be text. */
export function blocks<Entries extends v.ObjectEntries>(
  entries: Entries,
): Field<(string | Block<Entries>)[]> {
  const block = strict(entries);
  const item: Field<string | Block<Entries>> = v.lazy((input) =>
    typeof input === "string" ? v.string() : block
  );
  return v.nullish(v.array(item, wanted("a list")), () => []);
}

/** A block that may be absent and may not have an unknown field. */
export function strict<Entries extends v.ObjectEntries>(entries: Entries): Field<Block<Entries>> {
  const names = Object.keys(entries);
  return v.strictObject(entries, (issue) => {
    if (issue.expected === "never") {
      const name = String(issue.path?.at(-1)?.key);
      return `Expected one of the fields ${names.join(", ")}, found ${shorten(issue.received)}` +
        didYouMean(name, names);
    }
    // Of a field that has to be given.
    if (issue.path?.at(-1)?.origin === "key") return "Expected a value, found nothing";
    return wanted("fields")(issue);
  });
}
