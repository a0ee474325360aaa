/**
 * Reads the objects of one manifest file, without blocking the event loop.
 *
 * @module
 */
import { apiVersionsOf, type KindSpec } from "../../api/kind.ts";
import {
  readYaml,
  type TextPosition,
  type YamlDocument,
  type YamlError,
  type YamlResult,
} from "../../config/yaml_source.ts";
import type { TimeSlice } from "../../os/time_slice.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import { type InformerSet, objectId } from "../informer_set.ts";
import { findJsonItems, type FoundItems } from "../json_text.ts";
import type { StringTable } from "../string_table.ts";
import {
  DUMP_KIND,
  ignoredKindOf,
  isMapping,
  itemTypeOf,
  kindOf,
  type ManifestObject,
  type ManifestObjectId,
  type ManifestType,
  rawObjectId,
  readManifestObject,
  readPartialObject,
} from "./manifest_objects.ts";
import { type FieldPath, ManifestProblems, ObjectReport } from "./manifest_problem.ts";

/** An object and its line in the file. */
export interface PlacedObject {
  readonly entry: ManifestObject;
  readonly line: number;
  /** When the file was last written (milliseconds since 1970), as this content of it was read. */
  readonly fileTimeMs: number;
}

/** The objects of one file. */
export type FileObjects = ReadonlyMap<ManifestObjectId, PlacedObject>;

/** The file, the followed kinds and what concurrent reads share. */
interface ManifestFileOptions {
  readonly file: string;
  readonly fileTimeMs: number;
  readonly informers: InformerSet;
  readonly strings: StringTable;
}

/**
 * The kind of longer documents is checked before they are parsed: resource definitions may have a
 * megabyte.
 */
const LONG_TEXT = 64 * 1024;

/** Reads the text of a manifest file. Never rejects because of its content. */
export async function readManifestFile(
  text: string,
  options: ManifestFileOptions,
  slice: TimeSlice,
): Promise<ManifestFileContent> {
  const content = new ManifestFileContent(options);
  for (const part of splitDocuments(text)) {
    const pause = slice.pause();
    if (pause) await pause;
    if (part === undefined) continue;
    const splitting = splitList(part);
    let step = splitting.next();
    for (; !step.done; step = splitting.next()) {
      const pause = slice.pause();
      if (pause) await pause;
    }
    const list = step.value;
    const itemOf = list && content.readEnvelope(list);
    if (!itemOf) content.readPart(part);
    else if (itemOf !== "broken") {
      for (const item of list.items) {
        const pause = slice.pause();
        if (pause) await pause;
        content.readPart(item, itemOf);
      }
    }
  }
  return content;
}

/** Deepest nesting of lists, which no real file needs. */
const DEEPEST_LIST = 3;

/** The content of a manifest file; it grows with each part. */
export class ManifestFileContent {
  readonly objects = new Map<ManifestObjectId, PlacedObject>();
  /** Objects with errors and a readable name, some without the invalid fields. */
  readonly refused = new Map<ManifestObjectId, PlacedObject | undefined>();
  /** Numbers of objects of ignored kinds. */
  readonly ignored = new Map<string, number>();
  readonly problems: ManifestProblems;
  /**
   * Whether unknown objects may be missing: after syntax errors, or objects with errors and without
   * a name.
   */
  isIncomplete = false;
  /** Whether there were syntax errors. */
  isBroken = false;
  readonly #kinds: ReadonlyMap<string, KindSpec>;

  constructor(private readonly options: ManifestFileOptions) {
    this.#kinds = options.informers.kinds;
    this.problems = new ManifestProblems(options.file);
  }

  /** Returns the defaults of a list's items; `undefined` if it is not a list. */
  readEnvelope({ envelope, lineOf }: ManifestList): ManifestType | "broken" | undefined {
    const { documents, errors } = this.#parse(envelope);
    for (const error of errors) this.#syntaxError({ ...error, line: lineOf(error.line) });
    return errors.length > 0 ? "broken" : itemTypeOf(documents[0]?.value);
  }

  readPart(part: ManifestPart, itemOf?: ManifestType): void {
    const { text, origin } = part;
    const ignored = text.length > LONG_TEXT ? ignoredKindOf(text, this.#kinds) : undefined;
    if (ignored !== undefined) return this.#ignore(ignored);
    const { documents, errors } = this.#parse(part);
    for (const error of errors) this.#syntaxError(error);
    for (const document of documents) {
      const { value } = document;
      // Documents that are empty or contain only comments.
      if (value === null || value === undefined) continue;
      this.#collect(document, origin, value, [], itemOf ?? {}, itemOf ? 1 : 0);
    }
  }

  #parse({ text, origin }: ManifestPart): YamlResult {
    return readYaml(text, { file: this.options.file, origin, quick: true });
  }

  #syntaxError({ line, column, message }: YamlError): void {
    this.isBroken = this.isIncomplete = true;
    const problem = { severity: "error" as const, path: "", value: "", message };
    this.problems.add(problem, () => ({ line, column }));
  }

  /**
   * Collects an object, or those of a list. Reports and refuses objects with errors. `root`, `type` and
   * `depth` come from the lists around the value.
   */
  #collect(
    document: YamlDocument,
    origin: TextPosition,
    value: unknown,
    root: FieldPath,
    type: ManifestType,
    depth: number,
  ): void {
    const collectItems = (items: unknown, at: FieldPath, type: ManifestType, depth: number) => {
      for (const [index, value] of (Array.isArray(items) ? items : []).entries()) {
        this.#collect(document, origin, value, [...at, index], type, depth);
      }
    };
    const itemType = itemTypeOf(value);
    if (itemType && depth < DEEPEST_LIST) {
      const { items } = value as { readonly items?: unknown };
      return collectItems(items, [...root, "items"], itemType, depth + 1);
    }
    if (isMapping(value) && value["kind"] === DUMP_KIND && isMapping(value["objects"])) {
      const { objects } = value;
      for (const spec of this.#kinds.values()) {
        const type = { kind: spec.kind, apiVersion: apiVersionsOf(spec)[0]! };
        const at = [...root, "objects", spec.plural];
        collectItems(objects[spec.plural], at, type, DEEPEST_LIST);
      }
      return;
    }
    const reportOf = (object?: string) => new ObjectReport(document, root, this.problems, object);
    const spec = kindOf(value, type, this.#kinds, reportOf());
    if (typeof spec === "string") return this.#ignore(spec);
    const id = spec && rawObjectId(spec, value);
    if (spec !== undefined) {
      const report = reportOf(id ?? spec.kind);
      const { strings } = this.options;
      const { isJson } = document;
      const entry = readManifestObject(spec, { value, isJson }, report, strings);
      if (entry) return this.#add(entry, origin);
      if (id !== undefined) {
        const rest = spec.restricts ? readPartialObject(spec, value, strings) : undefined;
        this.refused.set(id, rest && this.#followed(rest, origin.line));
      }
    }
    if (id === undefined) this.isIncomplete = true;
  }

  #add(entry: ManifestObject, { line, column }: TextPosition): void {
    const placed = this.#followed(entry, line);
    if (placed === undefined) return;
    const id = objectId(entry.spec, entry.object);
    const first = this.objects.get(id);
    if (!first) {
      this.objects.set(id, placed);
      return;
    }
    const message = `is repeated in this file; the one of line ${first.line} is used`;
    this.problems.add({ severity: "error", object: id, path: "", value: "", message }, () => ({
      line,
      column,
    }));
  }

  #followed(entry: ManifestObject, line: number): PlacedObject | undefined {
    const { fileTimeMs, informers } = this.options;
    return informers.isFollowed(entry.spec, entry.object) ? { entry, line, fileTimeMs } : undefined;
  }

  #ignore(kind: string): void {
    this.ignored.set(kind, (this.ignored.get(kind) ?? 0) + 1);
  }
}

/**
 * Brings the last good content of a file up to date.
 *
 * - A file with syntax errors keeps all its objects, because it is unknown what is missing. Without
 * former objects, it gives the readable ones.
 * - An object with errors keeps its last valid version; the others are updated. Without one, an object
 * that restricts others is used without its invalid fields.
 * - While an object has errors and no name, missing objects stay: it may be one of them.
 *
 * Unchanged objects keep their identity.
 */
export async function keepLastGood(
  previous: FileObjects,
  content: ManifestFileContent,
  slice: TimeSlice,
): Promise<FileObjects> {
  if (content.isBroken && previous.size > 0) return previous;
  const objects = new Map<ManifestObjectId, PlacedObject>();
  for (const [id, placed] of content.objects) {
    objects.set(id, reuse(previous.get(id), placed));
    const pause = slice.pause();
    if (pause) await pause;
  }
  for (const [id, rest] of content.refused) {
    const last = previous.get(id);
    const used = last && (!last.entry.isPartial || !rest) ? last : rest;
    if (used && !objects.has(id)) objects.set(id, reuse(last, used));
  }
  if (!content.isIncomplete) return objects;
  for (const [id, last] of previous) if (!objects.has(id)) objects.set(id, last);
  return objects;
}

function reuse(previous: PlacedObject | undefined, current: PlacedObject): PlacedObject {
  if (!previous || !deepEqual(previous.entry.object, current.entry.object)) return current;
  return previous.line === current.line ? previous : { ...previous, line: current.line };
}

/** A part of a file that can be parsed separately. */
interface ManifestPart {
  readonly text: string;
  /** The start of the part in the file. */
  readonly origin: TextPosition;
}

/**
 * Reads the objects of a text as they are, those of lists one by one, each with its place. Adds what
 * cannot be read to `problems`.
 */
export function readRawObjects(
  text: string,
  file: string,
  problems: string[],
): readonly { readonly value: Readonly<Record<string, unknown>>; readonly place: string }[] {
  const found: { readonly value: Readonly<Record<string, unknown>>; readonly place: string }[] = [];
  for (const part of splitDocuments(text)) {
    if (!part) continue;
    const { documents, errors } = readYaml(part.text, { file, origin: part.origin, quick: true });
    problems.push(...errors.map(({ line, message }) => `${file}:${line}: ${message}`));
    for (const { value, positionOf } of documents) {
      const type = itemTypeOf(value);
      const items = type && isMapping(value) ? value["items"] ?? [] : [value];
      for (const [index, item] of (items as readonly unknown[]).entries()) {
        if (item === null) continue;
        const { line } = positionOf(type ? ["items", index] : []);
        const place = `${file}:${line}`;
        if (isMapping(item)) found.push({ value: { ...type, ...item }, place });
        else problems.push(`${place}: Expected an object, with fields, found a ${typeof item}`);
      }
    }
  }
  return found;
}

/** A list without its items, and the items. */
interface ManifestList {
  readonly envelope: ManifestPart;
  /** Returns the line of the file for a line of the envelope. */
  readonly lineOf: (envelopeLine: number) => number;
  /**
   * Can be iterated once: each text is created on request, or the file would be in memory twice.
   */
  readonly items: Iterable<ManifestPart>;
}

/** Shorter documents are parsed whole. */
const WORTH_SPLITTING = 16 * 1024;

/** Maximum number of attempts among keys of one name in a mapping. */
const MOST_TRIES = 100;
/** Characters between two opportunities for the caller to yield. */
const STRIDE = 256 * 1024;

/**
 * Yields the documents of a file, each with the `---` before it. Such a line ends a document
 * anywhere, even inside a block scalar. Yields `undefined` in between, so that the caller can yield
 * to the event loop.
 */
function* splitDocuments(text: string): Generator<ManifestPart | undefined> {
  const lines = new LineCount(text);
  let start = 0;
  // A directive belongs to the document after the next marker: the parser needs both.
  const isDirected = text.startsWith("%") || text.includes("\n%");
  for (const at of isDirected ? [] : lineStarts(text, "---")) {
    const isMarker = /^[ \t\r\n]?$/.test(text.slice(at + 3, at + 4));
    if (!isMarker) yield undefined;
    if (!isMarker || at === start) continue;
    yield { text: text.slice(start, at), origin: lines.at(start) };
    start = at;
  }
  yield { text: text.slice(start), origin: lines.at(start) };
}

/**
 * Splits a document that is a long list, in YAML (`items:` and dashes at one indentation) or JSON;
 * returns `undefined` for any other. Yields between items, so that the caller can yield to the
 * event loop.
 */
function* splitList(part: ManifestPart): Generator<void, ManifestList | undefined> {
  const { text, origin } = part;
  if (text.length < WORTH_SPLITTING) return undefined;
  const isJson = /\S/.exec(text)?.[0] === "{";
  const found = isJson ? yield* findJsonItems(text) : yield* findYamlItems(text);
  if (!found) return undefined;
  const envelope = `${text.slice(0, found.start)}\n${text.slice(found.end)}`;
  const lines = new LineCount(text, origin);
  const [cutFrom, cutTo] = [lines.at(found.start).line, lines.at(found.end).line];
  return {
    envelope: { text: envelope, origin },
    lineOf: (line) => line <= cutFrom ? line : line - (cutFrom + 1) + cutTo,
    items: itemsOf(part, { ...found, isJson }),
  };
}

function* itemsOf(
  { text, origin }: ManifestPart,
  { items, isJson }: FoundItems & { readonly isJson: boolean },
): Generator<ManifestPart> {
  const lines = new LineCount(text, origin);
  for (const { start, end } of items) {
    // A blank replaces the dash, so that its line stays indented like the next ones.
    const item = isJson ? text.slice(start, end) : text.slice(start, end).replace("-", " ");
    yield { text: item, origin: lines.at(start) };
  }
}

function* findYamlItems(text: string): Generator<void, FoundItems | undefined> {
  const kind = matchLine(text, "kind:", / *["']?\w*List["']?[ \r]*(?:\n|$)/y);
  const key = kind &&
    matchLine(text, "items:", /[ \r]*\n(?:[ \r]*(?:#.*)?\n){0,1000}( *)-[ \r\n]/y);
  // An alias may refer to an anchor in another item.
  if (!key || (yield* hasAlias(text))) return undefined;
  const indent = key[1]!;
  const less = indent.length === 0 ? "[^ #\\r\\n-]" : ` {0,${indent.length - 1}}[^ #\\r\\n]`;
  const boundary = new RegExp(`^(?:${indent}-(?=[ \\r\\n])|${less})`, "gm");
  boundary.lastIndex = key.index;
  const items: { start: number; end: number }[] = [];
  let start: number | undefined;
  for (let match = boundary.exec(text);; match = boundary.exec(text)) {
    const isItem = match !== null && match[0] === `${indent}-`;
    const at = match?.index ?? text.length;
    if (start !== undefined) items.push({ start, end: at });
    if (!isItem) return { start: key.index, end: at, items };
    start = at;
    yield;
  }
}

/** Matches the rest of a line after its first words, for the first matching line. */
function matchLine(text: string, words: string, rest: RegExp): RegExpExecArray | undefined {
  for (const at of lineStarts(text, words).take(MOST_TRIES)) {
    rest.lastIndex = at + words.length;
    const match = rest.exec(text);
    if (match) return match;
  }
  return undefined;
}

/**
 * Finds lines that begin with these words. A regular expression takes 30 ms for 8 MB without a
 * match, this 1 ms.
 */
function* lineStarts(text: string, words: string): Generator<number> {
  if (text.startsWith(words)) yield 0;
  const next = `\n${words}`;
  for (let at = text.indexOf(next); at >= 0; at = text.indexOf(next, at + 1)) yield at + 1;
}

function* hasAlias(text: string): Generator<void, boolean> {
  if (/^[&*]\w/.test(text)) return true;
  for (let from = 0; from < text.length; from += STRIDE) {
    // Including the characters before and after.
    const piece = text.slice(Math.max(0, from - 1), from + STRIDE + 1);
    if (/[\s,[{:][&*]\w/.test(piece)) return true;
    yield;
  }
  return false;
}

/** Counts the lines up to increasing offsets. */
class LineCount {
  #line: number;
  /** Offset of column 1 of the current line; less than 0 if the text begins inside a line. */
  #lineStart: number;

  constructor(private readonly text: string, origin: TextPosition = { line: 1, column: 1 }) {
    this.#line = origin.line;
    this.#lineStart = 1 - origin.column;
  }

  at(offset: number): TextPosition {
    const from = Math.max(0, this.#lineStart);
    for (let end = this.text.indexOf("\n", from); end >= 0 && end < offset;) {
      this.#line++;
      this.#lineStart = end + 1;
      end = this.text.indexOf("\n", end + 1);
    }
    return { line: this.#line, column: offset - this.#lineStart + 1 };
  }
}
