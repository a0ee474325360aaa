import {
  type Cursor,
  type Field,
  type Mark,
  type Reading,
  type Shape,
  ShapeError,
  type Texts,
  WANTED,
  within,
} from "./object_reader.ts";

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
export class JsonCursor implements Cursor {
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
