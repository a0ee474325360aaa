/**
 * Reads the objects of one manifest file, without blocking the event loop.
 *
 * @module
 */
import {
  readYaml,
  type TextPosition,
  type YamlError,
  type YamlResult,
} from "../../config/yaml_source.ts";
import { type InformerSet, objectId } from "../informer_set.ts";
import type { KindSpec } from "../../api/kind.ts";
import type { TimeSlice } from "../../os/time_slice.ts";
import type { StringTable } from "../string_table.ts";
import type { ManifestObject, ManifestObjectId } from "./manifest_object.ts";
import {
  ignoredKindOf,
  itemTypeOf,
  type ManifestOutcome,
  type ManifestType,
  readManifestObjects,
} from "./manifest_objects.ts";
import { ManifestProblems } from "./manifest_problem.ts";
import {
  type ManifestList,
  type ManifestPart,
  splitDocuments,
  splitList,
} from "./manifest_text.ts";

/** An object and its line in the file. */
export interface PlacedObject {
  readonly entry: ManifestObject;
  readonly line: number;
  /** When the file was last written (milliseconds since 1970), as this content of it was read. */
  readonly fileTimeMs: number;
}

/** The content of a manifest file. */
export interface ManifestFileContent {
  readonly objects: ReadonlyMap<ManifestObjectId, PlacedObject>;
  /** Objects with errors and a readable name, some without the invalid fields. */
  readonly refused: ReadonlyMap<ManifestObjectId, PlacedObject | undefined>;
  /**
   * Whether unknown objects may be missing: after syntax errors, or objects with errors and without
   * a name.
   */
  readonly isIncomplete: boolean;
  /** Whether there were syntax errors. */
  readonly isBroken: boolean;
  readonly problems: ManifestProblems;
  /** Numbers of objects of ignored kinds. */
  readonly ignored: ReadonlyMap<string, number>;
}

/** Edges and shared state of {@linkcode readManifestFile}. */
interface ManifestFileDependencies {
  /** Shared by all concurrent reads. */
  readonly slice: TimeSlice;
  readonly strings: StringTable;
}

/** The file and the followed kinds. */
interface ManifestFileOptions {
  readonly file: string;
  readonly fileTimeMs: number;
  readonly informers: InformerSet;
}

/**
 * The kind of longer documents is checked before they are parsed: resource definitions may have a
 * megabyte.
 */
const LONG_TEXT = 64 * 1024;

/** Reads the text of a manifest file. Never rejects because of its content. */
export async function readManifestFile(
  text: string,
  dependencies: ManifestFileDependencies,
  options: ManifestFileOptions,
): Promise<ManifestFileContent> {
  const reader = new FileReader(dependencies, options);
  const { slice } = dependencies;
  for (const part of splitDocuments(text)) {
    const pause = slice.pause();
    if (pause) await pause;
    if (part === undefined) continue;
    const list = await split(part, slice);
    const itemOf = list && reader.readEnvelope(list);
    if (!itemOf) reader.readPart(part);
    else if (itemOf !== "broken") {
      for (const item of list.items) {
        const pause = slice.pause();
        if (pause) await pause;
        reader.readPart(item, itemOf);
      }
    }
  }
  return reader.content();
}

async function split(part: ManifestPart, slice: TimeSlice): Promise<ManifestList | undefined> {
  const splitting = splitList(part);
  for (;;) {
    const step = splitting.next();
    if (step.done) return step.value;
    const pause = slice.pause();
    if (pause) await pause;
  }
}

/** Collects the content of the parts of one file. */
class FileReader {
  readonly #strings: StringTable;
  readonly #options: ManifestFileOptions;
  readonly #kinds: ReadonlyMap<string, KindSpec>;
  readonly #problems: ManifestProblems;
  readonly #objects = new Map<ManifestObjectId, PlacedObject>();
  readonly #refused = new Map<ManifestObjectId, PlacedObject | undefined>();
  readonly #ignored = new Map<string, number>();
  #isIncomplete = false;
  #isBroken = false;

  constructor({ strings }: ManifestFileDependencies, options: ManifestFileOptions) {
    this.#strings = strings;
    this.#options = options;
    this.#kinds = options.informers.kinds;
    this.#problems = new ManifestProblems(options.file);
  }

  content(): ManifestFileContent {
    return {
      objects: this.#objects,
      refused: this.#refused,
      isIncomplete: this.#isIncomplete,
      isBroken: this.#isBroken,
      problems: this.#problems,
      ignored: this.#ignored,
    };
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
      const reading = {
        problems: this.#problems,
        strings: this.#strings,
        kinds: this.#kinds,
        ...(itemOf && { itemOf }),
      };
      for (const outcome of readManifestObjects(document, reading)) this.#take(outcome, origin);
    }
  }

  #parse({ text, origin }: ManifestPart): YamlResult {
    return readYaml(text, { file: this.#options.file, origin, quick: true });
  }

  #syntaxError({ line, column, message }: YamlError): void {
    this.#isBroken = this.#isIncomplete = true;
    const problem = { severity: "error" as const, path: "", value: "", message };
    this.#problems.add(problem, () => ({ line, column }));
  }

  #take(outcome: ManifestOutcome, { line, column }: TextPosition): void {
    if (outcome.outcome === "ignored") return this.#ignore(outcome.kind);
    if (outcome.outcome === "refused") {
      if (outcome.id === undefined) this.#isIncomplete = true;
      else this.#refused.set(outcome.id, this.#followed(outcome.rest, line));
      return;
    }
    const placed = this.#followed(outcome.entry, line);
    if (placed === undefined) return;
    const id = objectId(placed.entry.spec, placed.entry.object);
    const first = this.#objects.get(id);
    if (!first) {
      this.#objects.set(id, placed);
      return;
    }
    const message = `is repeated in this file; the one of line ${first.line} is used`;
    this.#problems.add({ severity: "error", object: id, path: "", value: "", message }, () => ({
      line,
      column,
    }));
  }

  #followed(entry: ManifestObject | undefined, line: number): PlacedObject | undefined {
    if (entry === undefined) return undefined;
    const { fileTimeMs, informers } = this.#options;
    return informers.isFollowed(entry.spec, entry.object) ? { entry, line, fileTimeMs } : undefined;
  }

  #ignore(kind: string): void {
    this.#ignored.set(kind, (this.#ignored.get(kind) ?? 0) + 1);
  }
}
