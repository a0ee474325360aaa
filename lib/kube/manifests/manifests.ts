/**
 * A source of objects for a host without an API server: files and folders of YAML or JSON, checked
 * repeatedly while the program runs.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Clock } from "../../os/clock.ts";
import { type FileState, fileState, isGone } from "../../os/file_state.ts";
import { readTextUpTo } from "../../os/read_text_up_to.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { InformerSet } from "../informer_set.ts";
import { StringTable } from "../string_table.ts";
import { type FileObjects, keepLastGood, readManifestFile } from "./manifest_file.ts";
import type { ManifestObjectId } from "./manifest_objects.ts";
import { ManifestProblems, type ObjectPlace } from "./manifest_problem.ts";
import {
  filesNotShown,
  type ManifestFileRecord,
  type ManifestFileStatus,
  ManifestLog,
  manifestStatus,
} from "./manifest_status.ts";
import { ManifestStore } from "./manifest_store.ts";

/** The interval at which the paths are checked and new content is published. */
const PERIOD_MS = 1_000;
/** Every file is checked at least this often. */
const LONGEST_PERIOD_MS = 60_000;
/** Additional interval per file: one check costs about 0.05 ms. */
const PERIOD_PER_FILE_MS = 20;
/**
 * Maximum number of files that are sorted, so that objects come in their order. Sorting more takes
 * too long.
 */
const MOST_SORTED = 1_000;

/** Number of concurrent checks: for many small files most of the time is waiting. */
const LANES = 8;
/** A slower check continues in the background, and the lane takes the next file. */
const PATIENCE_MS = 1_000;
/** Limit of unfinished checks: in a hanging file system, each occupies a thread. */
const MOST_UNDER_WAY = 64;

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

/**
 * The names of the files of a folder that are read. This excludes files that editors leave:
 * `.web.yaml.swp`, `web.yaml~`, `#web.yaml#`, `.#web.yaml`, `4913`.
 */
export const MANIFEST_NAME = /^[^.#].*\.(?:ya?ml|json)$/is;
const LOST_NAME = "its name is not valid UTF-8; rename the file";

/** The file operations that the manifest source needs. */
export interface ManifestFileSystem {
  /** Follows symlinks. `undefined` if nothing has this name. */
  stat(path: string): Promise<FileState | undefined>;
  /** Whether the name is that of a symlink. */
  isLink(path: string): Promise<boolean>;
  /** Names in a folder; `undefined` if it does not exist. */
  list(folder: string): Promise<readonly string[] | undefined>;
  /** Rejects for anything but a regular file, without waiting, and for more than `maxBytes`. */
  readText(path: string, maxBytes: number): Promise<string>;
}

/** The machine's files. */
export const hostFileSystem: ManifestFileSystem = {
  stat: fileState,

  isLink: (path) => Deno.lstat(path).then(({ isSymlink }) => isSymlink, () => false),

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

/** A manifest source; it does nothing before `run()`. */
export class FileManifestSource {
  readonly #clock: Clock;
  readonly #fileSystem: ManifestFileSystem;
  readonly #paths: readonly string[];
  readonly #store: ManifestStore;
  readonly #log: ManifestLog;
  readonly #strings = new StringTable();
  /** Shared, so that no two files are parsed in one turn of the event loop. */
  readonly #slice: TimeSlice;
  /** The state of each file that was read, by path. */
  readonly #records = new Map<string, ManifestFileRecord>();
  /** New versions of files that may still change, and since when. */
  readonly #changing = new Map<string, { readonly version: string; readonly since: number }>();
  /** Total size of the files that are being read. */
  #bytes = 0;
  #freed = Promise.withResolvers<void>();
  /** The files that the paths refer to: if two contain the same object, the first by path wins. */
  #files: ReadonlySet<string> = new Set();
  /** The state of each path; `undefined` = it does not exist, or could not be read. */
  #states: ReadonlyMap<string, FileState | undefined> = new Map();
  /** Paths without a file, and why. */
  #missing: ReadonlyMap<string, string> = new Map();
  /** False if something could not be read: a file that is not listed may still exist. */
  #isCertain = false;
  #everythingDueAt = 0;
  /** Whether each file has been started. */
  #isBegun = false;
  /** Whether each file has been read once. */
  #isComplete = false;
  /** Files that are being checked, by path. */
  readonly #underWay = new Map<string, Promise<void>>();
  /** The time at which a file is checked again (clock time). */
  readonly #later = new Map<string, number>();
  /** Files that were read and are not published, and since when. */
  #read = new Map<string, FileObjects>();
  #readSince: number | undefined;
  #wake: () => void = () => {};

  /**
   * `paths` are files and folders; the source waits for missing ones. Only the objects that `informers`
   * follow are read. The file system is the machine's, unless a test replaces it.
   */
  constructor(
    { clock, logger, fileSystem = hostFileSystem }: {
      readonly clock: Clock;
      readonly logger: Logger;
      readonly fileSystem?: ManifestFileSystem;
    },
    private readonly options: {
      readonly paths: readonly string[];
      readonly informers: InformerSet;
    },
  ) {
    this.#clock = clock;
    this.#fileSystem = fileSystem;
    this.#paths = options.paths.map((path) => path.replace(/(?<=.)\/+$/, ""));
    this.#store = new ManifestStore(clock, options.informers);
    this.#log = new ManifestLog(clock, logger);
    this.#slice = new TimeSlice(clock);
  }

  /** Returns the state of each file, of at most `most`, those with problems before others. @default {a thousand} */
  status(most?: number): readonly ManifestFileStatus[] {
    return manifestStatus(this.#records, this.#store, this.#missing, most);
  }

  /** As {@linkcode ManifestStore.placeOf}. */
  placeOf(id: ManifestObjectId): ObjectPlace | undefined {
    return this.#store.placeOf(id);
  }

  /** The number of files that the status leaves out. */
  get filesNotShown(): number {
    return filesNotShown(this.#records, this.#missing);
  }

  /**
   * Feeds the informers; resolves once the signal is aborted. Synced when every file has been read
   * once, with any result. Before that, objects are added as they are read, and none is deleted.
   */
  async run(signal: AbortSignal): Promise<void> {
    const startedAt = this.#clock.now();
    const rounds = async () => {
      while (!signal.aborted) {
        await this.#round(signal);
        if (!this.#isComplete) this.#log.incomplete(startedAt, [...this.#underWay.keys()]);
        await this.#wait(signal);
      }
      await Promise.all(this.#underWay.values());
    };
    const ended = new AbortController();
    // A hanging file system does not react to an abort.
    const late = whenAborted(signal).then(() => this.#clock.sleep(PERIOD_MS, ended.signal));
    await Promise.race([rounds(), late]).finally(() => ended.abort());
    await late.catch(() => {});
  }

  /** Checks due files, and publishes new content. */
  async #round(signal: AbortSignal): Promise<void> {
    const startedAt = this.#clock.now();
    const due = [...this.#later].filter(([, at]) => at <= startedAt).map(([path]) => path);
    for (const path of due) this.#later.delete(path);
    const isEverything = startedAt >= this.#everythingDueAt || await this.#havePathsChanged();
    const paths = isEverything ? await this.#list() : due;
    const isListed = (path: string) => !isEverything || !this.#isCertain || this.#files.has(path);
    const looking = this.#lookAt(paths, isListed, signal);
    while (!await this.#endsIn(PERIOD_MS, looking, signal)) {
      if (!this.#isComplete) await this.#publish({ isPartial: true });
    }
    if (signal.aborted) return;
    this.#isBegun ||= isEverything && await looking;
    const isComplete = this.#isComplete || this.#isBegun && this.#underWay.size === 0;
    await this.#publish({ isPartial: !isComplete });
    if (isEverything) {
      // Independent of the duration: on a busy machine changes would be noticed late.
      const period = Math.max(PERIOD_MS, this.#files.size * PERIOD_PER_FILE_MS);
      this.#everythingDueAt = this.#clock.now() + Math.min(period, LONGEST_PERIOD_MS);
    }
    if (!isComplete || this.#isComplete) return;
    this.#isComplete = true;
    this.#store.markSynced();
  }

  /** Waits for a period, or until a check is due, a slow one has ended, or an abort. */
  async #wait(signal: AbortSignal): Promise<void> {
    const now = this.#clock.now();
    let until = now + PERIOD_MS;
    for (const at of this.#later.values()) until = Math.min(until, at);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    if (this.#read.size > 0) resolve();
    await this.#endsIn(Math.max(0, until - now), promise, signal);
  }

  /**
   * Checks several files at a time; a slow one does not delay the others. Resolves once each has been
   * checked or is slow, to whether all were started.
   */
  async #lookAt(
    paths: readonly string[],
    isListed: (path: string) => boolean,
    signal: AbortSignal,
  ): Promise<boolean> {
    let isWhole = true;
    const waiting = paths.values();
    const lane = async () => {
      for (const path of waiting) {
        if (signal.aborted) return;
        if (this.#underWay.has(path)) continue;
        if (this.#underWay.size >= MOST_UNDER_WAY) return void (isWhole = false);
        const look = this.#look(path, isListed(path));
        this.#underWay.set(path, look);
        await this.#endsIn(PATIENCE_MS, look, signal);
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    return isWhole;
  }

  async #look(path: string, isListed: boolean): Promise<void> {
    this.#later.delete(path);
    const startedAt = this.#clock.now();
    const previous = this.#read.get(path) ?? this.#store.objectsOf(path);
    const found = await this.#readChanged(path, isListed, previous)
      .catch((error: unknown) => this.#unreadable(path, error, previous));
    this.#underWay.delete(path);
    if (typeof found === "number") {
      this.#later.set(path, this.#clock.now() + found);
    } else if (found !== undefined) {
      this.#read.set(path, found);
      this.#readSince = Math.min(this.#readSince ?? startedAt, startedAt);
    }
    this.#wake();
  }

  /**
   * Reads a file if it has changed. Returns its objects; `undefined` if they are the same; after how many
   * milliseconds to check it again if it is being written, or looks gone.
   */
  async #readChanged(
    path: string,
    isListed: boolean,
    previous: FileObjects,
  ): Promise<FileObjects | number | undefined> {
    const record = this.#records.get(path);
    const state = isListed ? await this.#fileSystem.stat(path) : undefined;
    if (!state) {
      this.#changing.delete(path);
      // What had objects counts as deleted first.
      if (isListed && previous.size === 0 && await this.#fileSystem.isLink(path)) {
        throw new Deno.errors.NotFound("it is a link to a file that does not exist");
      }
      if (!this.#records.has(path)) return undefined;
      if (previous.size > 0 && this.#isSuspect(path)) return CONFIRM_MS;
      this.#records.delete(path);
      return new Map();
    }
    const { version, kind, size } = state;
    if (version === record?.version && record.suspectSince === undefined) return undefined;
    if (this.#isComplete) {
      const before = this.#changing.get(path);
      const since = before?.since ?? this.#clock.now();
      this.#changing.set(path, { version, since });
      const isQuiet = version === before?.version || this.#clock.now() - since >= LONGEST_WAIT_MS;
      if (!isQuiet) return QUIET_MS;
    }
    this.#changing.delete(path);
    if (kind !== "file") throw new TypeError("it is not a regular file");
    if (size > LARGEST_FILE) {
      throw new RangeError(`it has ${size} bytes; at most ${LARGEST_FILE} are accepted, split it`);
    }
    const isSettled = !this.#isFresh(state);
    while (this.#bytes > 0 && this.#bytes + size > MOST_BYTES) await this.#freed.promise;
    this.#bytes += size;
    try {
      const text = await this.#fileSystem.readText(path, LARGEST_FILE);
      if (text.trim() === "" && previous.size > 0 && this.#isSuspect(path)) return CONFIRM_MS;
      const content = await readManifestFile(text, {
        file: path,
        fileTimeMs: state.modifiedAtMs ?? 0,
        informers: this.options.informers,
        strings: this.#strings,
      }, this.#slice);
      const objects = await keepLastGood(previous, content, this.#slice);
      const isStale = content.isIncomplete || content.refused.size > 0;
      this.#records.set(path, {
        version: isSettled ? version : undefined,
        problems: content.problems,
        isStale,
        lastGoodAtMs: isStale ? record?.lastGoodAtMs : this.#clock.wallNow(),
        ignored: content.ignored,
      });
      return objects;
    } finally {
      this.#bytes -= size;
      this.#freed.resolve();
      this.#freed = Promise.withResolvers();
    }
  }

  /** Returns whether a file that looks gone may return soon. Records when this was first seen. */
  #isSuspect(path: string): boolean {
    const record = this.#records.get(path);
    if (!record) return false;
    const suspectSince = record.suspectSince ?? this.#clock.now();
    this.#records.set(path, { ...record, suspectSince });
    return this.#clock.now() - suspectSince < CONFIRM_MS;
  }

  /** Keeps the former content in use. Without a version, each check tries again. */
  #unreadable(path: string, error: unknown, previous: FileObjects): FileObjects | undefined {
    const { problems: former, lastGoodAtMs, ignored = new Map() } = this.#records.get(path) ?? {};
    const problems = new ManifestProblems(path);
    const message = `Cannot read manifest: ${error instanceof Error ? error.message : error}`;
    problems.add(
      { severity: "error", path: "", value: "", message },
      () => ({ line: 1, column: 1 }),
    );
    this.#records.set(path, { problems, isStale: true, lastGoodAtMs, ignored });
    return former?.list[0]?.message === message ? undefined : previous;
  }

  /** Whether a file may have changed after its state was read and still have the same version. */
  #isFresh({ modifiedAtMs }: FileState): boolean {
    return modifiedAtMs !== undefined && Math.abs(this.#clock.wallNow() - modifiedAtMs) < TICK_MS;
  }

  /** Returns whether work ends within `ms`. An abort ends the wait too. */
  #endsIn(ms: number, work: Promise<unknown>, signal: AbortSignal): Promise<boolean> {
    if (signal.aborted) return Promise.resolve(true);
    return new Promise((resolve) => {
      const end = (hasEnded: boolean) => {
        timer.cancel();
        signal.removeEventListener("abort", onAbort);
        resolve(hasEnded);
      };
      const onAbort = () => end(true);
      const timer = this.#clock.setTimer(ms, () => end(false));
      signal.addEventListener("abort", onAbort);
      void work.then(() => end(true));
    });
  }

  /** Returns whether a path has another file or folder, or a folder has other names. */
  async #havePathsChanged(): Promise<boolean> {
    for (const [path, before] of this.#states) {
      const state = await this.#fileSystem.stat(path).catch(() => undefined);
      if (state?.version !== before?.version) return true;
      if (before?.kind === "folder" && this.#isFresh(before)) return true;
    }
    return false;
  }

  /**
   * Lists the files of the paths. Returns these and the former ones. As `kubectl apply -f`, reads the files
   * of a folder but not of its subfolders: a ConfigMap volume contains each file again in a subfolder.
   */
  async #list(): Promise<readonly string[]> {
    const files = new Set<string>();
    const states = new Map<string, FileState | undefined>();
    const missing = new Map<string, string>();
    let isCertain = true;
    for (const path of this.#paths) {
      try {
        // Read before the names: a name that is added later changes the version.
        const state = await this.#fileSystem.stat(path);
        states.set(path, state);
        if (state === undefined) {
          missing.set(path, "there is no such file or folder");
        } else if (state.kind === "folder") {
          let lost: string | undefined;
          for (const name of await this.#fileSystem.list(path) ?? []) {
            if (!MANIFEST_NAME.test(name)) continue;
            const file = `${path === "/" ? "" : path}/${name}`;
            files.add(file);
            // The listing has replaced bytes of the name if no file has it.
            if (lost !== undefined || !file.includes("\uFFFD")) continue;
            const found = this.#fileSystem.stat(file).then((state) => state !== undefined);
            if (!await found.catch(() => true)) lost = file;
          }
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
    [this.#files, this.#states, this.#missing] = [files, states, missing];
    this.#isCertain = isCertain;
    this.#log.missing(missing);
    const paths = [...new Set([...files, ...this.#records.keys()])];
    return paths.length > MOST_SORTED ? paths : paths.sort();
  }

  async #publish({ isPartial }: { readonly isPartial: boolean }): Promise<void> {
    const files = this.#read;
    const ms = this.#clock.now() - (this.#readSince ?? this.#clock.now());
    if (files.size === 0 && isPartial) return;
    this.#read = new Map();
    this.#readSince = undefined;
    const changes = await this.#store.update(files, { isPartial });
    if (files.size === 0) return;
    const read = [...files.keys()].map((path) => [path, this.#records.get(path)] as const);
    this.#log.read(read, changes, ms, this.#store.shadowed());
  }
}
