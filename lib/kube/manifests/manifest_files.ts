/**
 * The manifest files, with the last result of reading each.
 *
 * @module
 */
import type { Clock } from "../../os/clock.ts";
import type { FileState } from "../../os/file_state.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { InformerSet } from "../informer_set.ts";
import { StringTable } from "../string_table.ts";
import { type ManifestFileContent, type PlacedObject, readManifestFile } from "./manifest_file.ts";
import type { ManifestFileSystem } from "./manifest_file_system.ts";
import type { ManifestObjectId } from "./manifest_object.ts";
import { ManifestProblems } from "./manifest_problem.ts";
import type { FileObjects } from "./manifest_store.ts";

/**
 * Time until a vanished or empty file counts as such. Programs that do not rename a new file over
 * the old one cause such a moment, and it must not end a connection.
 */
const CONFIRM_MS = 300;

/** A file is read once it has not changed for this time, because one save has several steps. */
const QUIET_MS = 50;
/** A file that keeps changing is read after this time. */
const LONGEST_WAIT_MS = 1000;
/**
 * The kernel's clock for files has steps of up to 10 ms: a second change within one is invisible.
 */
const TICK_MS = 20;

/** Larger files are refused: a file must fit into memory several times over. */
const LARGEST_FILE = 64 * 1024 * 1024;
/** Total size of files that are read at a time, except for one larger file. */
const MOST_BYTES = 64 * 1024 * 1024;

/** The state of one file. */
export interface ManifestFileRecord {
  /** The version that was last read; `undefined` = read it in any case. */
  readonly version?: string;
  readonly problems: ManifestProblems;
  /** Wall-clock milliseconds at which it was last read without an error. */
  readonly lastGoodAtMs?: number;
  /** Whether an error keeps the last valid version of an object in use, or excluded an object. */
  readonly isStale: boolean;
  /** Since when a file with objects looks gone or empty (clock time). */
  readonly suspectSince?: number;
  readonly ignored: ReadonlyMap<string, number>;
}

/** The result of checking a file. */
type FileLook =
  | { readonly look: "unchanged" }
  /** It is being written, or looks gone; check again after this many milliseconds. */
  | { readonly look: "later"; readonly ms: number }
  | { readonly look: "changed"; readonly objects: FileObjects };

/** The options for checking a file. */
interface LookOptions {
  /** The previous result. */
  readonly previous: FileObjects;
  /** Whether it still belongs to the paths. */
  readonly isListed: boolean;
  /** Whether to wait until a changed file stays unchanged. */
  readonly waitsForQuiet: boolean;
}

/** Edges of {@linkcode ManifestFiles}. */
interface ManifestFilesDependencies {
  readonly clock: Clock;
  readonly fileSystem: ManifestFileSystem;
}

const UNCHANGED: FileLook = { look: "unchanged" };
const CHANGING: FileLook = { look: "later", ms: QUIET_MS };
const SUSPECT: FileLook = { look: "later", ms: CONFIRM_MS };
const NOTHING: FileObjects = new Map();
const NO_RECORD: Partial<ManifestFileRecord> & Pick<ManifestFileRecord, "ignored"> = {
  ignored: new Map(),
};

/** Reads manifest files after changes, and remembers their problems. */
export class ManifestFiles {
  readonly #clock: Clock;
  readonly #fileSystem: ManifestFileSystem;
  readonly #informers: InformerSet;
  readonly #strings = new StringTable();
  readonly #records = new Map<string, ManifestFileRecord>();
  /** New versions that may still change, and since when. */
  readonly #changing = new Map<string, { readonly version: string; readonly since: number }>();
  /** Total size of the files that are being read. */
  #bytes = 0;
  #freed = Promise.withResolvers<void>();
  /** Shared, so that no two files are parsed in one turn of the event loop. */
  readonly #slice: TimeSlice;

  constructor({ clock, fileSystem }: ManifestFilesDependencies, informers: InformerSet) {
    this.#clock = clock;
    this.#fileSystem = fileSystem;
    this.#informers = informers;
    this.#slice = new TimeSlice(clock);
  }

  /** The state of each file, by path. */
  get records(): ReadonlyMap<string, ManifestFileRecord> {
    return this.#records;
  }

  /** Checks a file and reads it if necessary. Never rejects because of the file or its content. */
  async look(path: string, { previous, isListed, waitsForQuiet }: LookOptions): Promise<FileLook> {
    const record = this.#records.get(path);
    try {
      const state = isListed ? await this.#fileSystem.stat(path) : undefined;
      if (!state) return this.#gone(path, previous);
      if (state.version === record?.version && record.suspectSince === undefined) return UNCHANGED;
      if (waitsForQuiet && this.#isChanging(path, state)) return CHANGING;
      this.#changing.delete(path);
      checkReadable(state);
      const version = isFresh(this.#clock, state) ? undefined : state.version;
      await this.#takeRoom(state.size);
      try {
        const text = await this.#fileSystem.readText(path, LARGEST_FILE);
        const fileTimeMs = state.modifiedAtMs ?? 0;
        return await this.#read(path, { text, previous, version, record, fileTimeMs });
      } finally {
        this.#giveRoom(state.size);
      }
    } catch (error) {
      return this.#unreadable(path, { error, previous });
    }
  }

  async #read(
    path: string,
    { text, previous, version, record, fileTimeMs }: {
      readonly text: string;
      readonly fileTimeMs: number;
      readonly previous: FileObjects;
      readonly version: string | undefined;
      readonly record: ManifestFileRecord | undefined;
    },
  ): Promise<FileLook> {
    if (text.trim() === "" && previous.size > 0 && this.#isSuspect(path)) return SUSPECT;
    const dependencies = { slice: this.#slice, strings: this.#strings };
    const reading = { file: path, fileTimeMs, informers: this.#informers };
    const content = await readManifestFile(text, dependencies, reading);
    const objects = await keepLastGood(previous, content, this.#slice);
    this.#records.set(path, this.#recordOf(content, { version, record }));
    return { look: "changed", objects };
  }

  /** Waits until the files that are being read leave room for another one. */
  async #takeRoom(size: number): Promise<void> {
    while (this.#bytes > 0 && this.#bytes + size > MOST_BYTES) await this.#freed.promise;
    this.#bytes += size;
  }

  #giveRoom(size: number): void {
    this.#bytes -= size;
    this.#freed.resolve();
    this.#freed = Promise.withResolvers();
  }

  #recordOf(
    content: ManifestFileContent,
    { version, record }: {
      readonly version: string | undefined;
      readonly record: ManifestFileRecord | undefined;
    },
  ): ManifestFileRecord {
    const isStale = content.isIncomplete || content.refused.size > 0;
    const lastGoodAtMs = isStale ? record?.lastGoodAtMs : this.#clock.wallNow();
    return {
      ...(version !== undefined && { version }),
      problems: content.problems,
      isStale,
      ...(lastGoodAtMs !== undefined && { lastGoodAtMs }),
      ignored: content.ignored,
    };
  }

  /** Returns whether a file has changed since the last check, but not for too long. */
  #isChanging(path: string, { version }: FileState): boolean {
    const before = this.#changing.get(path);
    const since = before?.since ?? this.#clock.now();
    this.#changing.set(path, { version, since });
    return version !== before?.version && this.#clock.now() - since < LONGEST_WAIT_MS;
  }

  #gone(path: string, previous: FileObjects): FileLook {
    this.#changing.delete(path);
    if (!this.#records.has(path)) return UNCHANGED;
    if (previous.size > 0 && this.#isSuspect(path)) return SUSPECT;
    this.#records.delete(path);
    return { look: "changed", objects: NOTHING };
  }

  /** Returns whether a file that looks gone may return soon. Records when this was first seen. */
  #isSuspect(path: string): boolean {
    const record = this.#records.get(path);
    if (!record) return false;
    const since = record.suspectSince ?? this.#clock.now();
    this.#records.set(path, { ...record, suspectSince: since });
    return this.#clock.now() - since < CONFIRM_MS;
  }

  /** Keeps the former content in use. Without a version, each check tries again. */
  #unreadable(
    path: string,
    { error, previous }: { readonly error: unknown; readonly previous: FileObjects },
  ): FileLook {
    const { suspectSince: _, version: __, ...record } = this.#records.get(path) ?? NO_RECORD;
    const problems = new ManifestProblems(path);
    const message = `Cannot read manifest: ${error instanceof Error ? error.message : error}`;
    problems.add(
      { severity: "error", path: "", value: "", message },
      () => ({ line: 1, column: 1 }),
    );
    this.#records.set(path, { ...record, problems, isStale: true });
    const isNews = record.problems?.list[0]?.message !== message;
    return isNews ? { look: "changed", objects: previous } : UNCHANGED;
  }
}

/** Whether a file may have changed after its state was read and still have the same version. */
export function isFresh(clock: Clock, { modifiedAtMs }: FileState): boolean {
  return modifiedAtMs !== undefined && Math.abs(clock.wallNow() - modifiedAtMs) < TICK_MS;
}

function checkReadable({ kind, size }: FileState): void {
  if (kind !== "file") throw new TypeError("it is not a regular file");
  if (size > LARGEST_FILE) {
    throw new RangeError(`it has ${size} bytes; at most ${LARGEST_FILE} are accepted, split it`);
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
async function keepLastGood(
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
