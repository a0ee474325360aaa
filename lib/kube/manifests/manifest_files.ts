/**
 * The manifest files, with the last result of reading each.
 *
 * @module
 */
import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import { type FileState, fileState, isGone } from "../../os/file_state.ts";
import { readTextUpTo } from "../../os/read_text_up_to.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { InformerSet } from "../informer_set.ts";
import { StringTable } from "../string_table.ts";
import { type ManifestFileContent, type PlacedObject, readManifestFile } from "./manifest_file.ts";
import type { ManifestObjectId } from "./manifest_objects.ts";
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

const UNCHANGED: FileLook = { look: "unchanged" };
const CHANGING: FileLook = { look: "later", ms: QUIET_MS };
const SUSPECT: FileLook = { look: "later", ms: CONFIRM_MS };
const NOTHING: FileObjects = new Map();
const NO_RECORD: Partial<ManifestFileRecord> & Pick<ManifestFileRecord, "ignored"> = {
  ignored: new Map(),
};

/** Reads manifest files after changes, and remembers their problems. */
export class ManifestFiles {
  readonly #strings = new StringTable();
  readonly #records = new Map<string, ManifestFileRecord>();
  /** New versions that may still change, and since when. */
  readonly #changing = new Map<string, { readonly version: string; readonly since: number }>();
  /** Total size of the files that are being read. */
  #bytes = 0;
  #freed = Promise.withResolvers<void>();
  /** Shared, so that no two files are parsed in one turn of the event loop. */
  readonly #slice: TimeSlice;

  constructor(
    private readonly clock: Clock,
    private readonly fileSystem: ManifestFileSystem,
    private readonly informers: InformerSet,
  ) {
    this.#slice = new TimeSlice(clock);
  }

  /** The state of each file, by path. */
  get records(): ReadonlyMap<string, ManifestFileRecord> {
    return this.#records;
  }

  /** Checks a file and reads it if necessary. Never rejects because of the file or its content. */
  async look(
    path: string,
    { previous, isListed, waitsForQuiet }: {
      /** The previous result. */
      readonly previous: FileObjects;
      /** Whether it still belongs to the paths. */
      readonly isListed: boolean;
      /** Whether to wait until a changed file stays unchanged. */
      readonly waitsForQuiet: boolean;
    },
  ): Promise<FileLook> {
    const record = this.#records.get(path);
    try {
      const state = isListed ? await this.fileSystem.stat(path) : undefined;
      if (!state) return this.#gone(path, previous);
      if (state.version === record?.version && record.suspectSince === undefined) return UNCHANGED;
      if (waitsForQuiet && this.#isChanging(path, state)) return CHANGING;
      this.#changing.delete(path);
      checkReadable(state);
      const version = isFresh(this.clock, state) ? undefined : state.version;
      await this.#takeRoom(state.size);
      try {
        const text = await this.fileSystem.readText(path, LARGEST_FILE);
        if (text.trim() === "" && previous.size > 0 && this.#isSuspect(path)) return SUSPECT;
        const reading = {
          file: path,
          fileTimeMs: state.modifiedAtMs ?? 0,
          informers: this.informers,
          strings: this.#strings,
        };
        const content = await readManifestFile(text, reading, this.#slice);
        const objects = await keepLastGood(previous, content, this.#slice);
        this.#records.set(path, this.#recordOf(content, version, record));
        return { look: "changed", objects };
      } finally {
        this.#giveRoom(state.size);
      }
    } catch (error) {
      return this.#unreadable(path, error, previous);
    }
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
    version: string | undefined,
    record: ManifestFileRecord | undefined,
  ): ManifestFileRecord {
    const isStale = content.isIncomplete || content.refused.size > 0;
    const lastGoodAtMs = isStale ? record?.lastGoodAtMs : this.clock.wallNow();
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
    const since = before?.since ?? this.clock.now();
    this.#changing.set(path, { version, since });
    return version !== before?.version && this.clock.now() - since < LONGEST_WAIT_MS;
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
    const since = record.suspectSince ?? this.clock.now();
    this.#records.set(path, { ...record, suspectSince: since });
    return this.clock.now() - since < CONFIRM_MS;
  }

  /** Keeps the former content in use. Without a version, each check tries again. */
  #unreadable(path: string, error: unknown, previous: FileObjects): FileLook {
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

/** The files that the paths refer to now. */
export interface ManifestListing {
  /** Files to read: if two contain the same object, the first by path wins. */
  readonly files: ReadonlySet<string>;
  /** The state of each path; `undefined` = it does not exist, or could not be read. */
  readonly states: ReadonlyMap<string, FileState | undefined>;
  /** Paths without a file, and why. */
  readonly missing: ReadonlyMap<string, string>;
  /** False if something could not be read: a file that is not listed may still exist. */
  readonly isCertain: boolean;
}

/** The state before the first listing. */
export const NOT_LISTED: ManifestListing = {
  files: new Set(),
  states: new Map(),
  missing: new Map(),
  isCertain: false,
};

/**
 * Returns whether a file of this name in a folder is read: `.yaml`, `.yml` or `.json`, not hidden.
 * This excludes files that editors leave: `.web.yaml.swp`, `web.yaml~`, `#web.yaml#`, `.#web.yaml`,
 * `4913`.
 */
export function isManifestName(name: string): boolean {
  return /^[^.#].*\.(?:ya?ml|json)$/is.test(name);
}

/**
 * Lists the files that the paths refer to. As `kubectl apply -f`, reads the files of a folder but
 * not of its subfolders: a ConfigMap volume contains each file again in a subfolder.
 */
export async function listManifests(
  fileSystem: ManifestFileSystem,
  paths: readonly string[],
): Promise<ManifestListing> {
  const files = new Set<string>();
  const states = new Map<string, FileState | undefined>();
  const missing = new Map<string, string>();
  let isCertain = true;
  for (const path of paths) {
    try {
      // Read before the names: a name that is added later changes the version.
      const state = await fileSystem.stat(path);
      states.set(path, state);
      if (state === undefined) {
        missing.set(path, "there is no such file or folder");
      } else if (state.kind === "folder") {
        const names = (await fileSystem.list(path) ?? []).filter(isManifestName);
        for (const name of names) files.add(childOf(path, name));
        const lost = await findLostName(fileSystem, names.map((name) => childOf(path, name)));
        if (lost !== undefined) missing.set(lost, LOST_NAME);
      } else {
        files.add(path);
      }
    } catch (error) {
      isCertain = false;
      states.set(path, undefined);
      missing.set(path, messageOf(error));
    }
  }
  return { files, states, missing, isCertain };
}

const LOST_NAME = "its name is not valid UTF-8; rename the file";

/** Returns the first path of a folder whose name has bytes that the listing had to replace. */
async function findLostName(
  fileSystem: ManifestFileSystem,
  paths: readonly string[],
): Promise<string | undefined> {
  for (const path of paths) {
    if (!path.includes("\uFFFD")) continue;
    const isThere = await fileSystem.stat(path).then((state) => state !== undefined, () => true);
    if (!isThere) return path;
  }
  return undefined;
}

function childOf(folder: string, name: string): string {
  return folder === "/" ? `/${name}` : `${folder}/${name}`;
}

/** The file operations that the manifest source needs. */
export interface ManifestFileSystem {
  /** Follows symlinks. `undefined` if nothing has this name. */
  stat(path: string): Promise<FileState | undefined>;
  /** Names in a folder; `undefined` if it does not exist. */
  list(folder: string): Promise<readonly string[] | undefined>;
  /** Rejects for anything but a regular file, without waiting, and for more than `maxBytes`. */
  readText(path: string, maxBytes: number): Promise<string>;
}

/** The machine's files. */
export const hostFileSystem: ManifestFileSystem = {
  stat: fileState,

  async list(folder) {
    const names: string[] = [];
    try {
      for await (const { name } of Deno.readDir(folder)) names.push(name);
    } catch (error) {
      if (isGone(error)) return undefined;
      throw error;
    }
    return names;
  },

  readText: (path, maxBytes) => readTextUpTo(path, maxBytes, { onlyFiles: true }),
};
