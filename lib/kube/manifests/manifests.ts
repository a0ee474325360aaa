/**
 * A source of objects for a host without an API server: files and folders of YAML or JSON, checked
 * repeatedly while the program runs.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { Clock } from "../../os/clock.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import type { InformerSet } from "../informer_set.ts";
import {
  hostFileSystem,
  isFresh,
  listManifests,
  ManifestFiles,
  type ManifestFileSystem,
  type ManifestListing,
  NOT_LISTED,
} from "./manifest_files.ts";
import {
  filesNotShown,
  type ManifestFileStatus,
  ManifestLog,
  manifestStatus,
} from "./manifest_status.ts";
import { type FileObjects, ManifestStore } from "./manifest_store.ts";

/** Dependencies of a manifest source. */
interface ManifestSourceDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The machine's, unless a test replaces it. */
  readonly fileSystem?: ManifestFileSystem;
}

/** Inputs of a manifest source. */
interface ManifestSourceOptions {
  /** Files and folders; the source waits for missing ones. */
  readonly paths: readonly string[];
  /** The followed objects; others are ignored. */
  readonly informers: InformerSet;
}

/** A source of objects. */
export interface ManifestSource {
  /**
   * Feeds the informers; resolves once the signal is aborted. Synced when every file has been read
   * once, with any result. Before that, objects are added as they are read, and none is deleted.
   */
  run(signal: AbortSignal): Promise<void>;
  /** Returns the state of each file, or of the first thousand, those with problems before others. */
  status(): readonly ManifestFileStatus[];
  /** The number of files that the status leaves out. */
  readonly filesNotShown: number;
}

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

/** A manifest source; it does nothing before `run()`. */
export class FileManifestSource implements ManifestSource {
  readonly #clock: Clock;
  readonly #fileSystem: ManifestFileSystem;
  readonly #paths: readonly string[];
  readonly #files: ManifestFiles;
  readonly #store: ManifestStore;
  readonly #log: ManifestLog;
  #listing: ManifestListing = NOT_LISTED;
  #everythingDueAt = 0;
  /** Whether each file has been started. */
  #isBegun = false;
  /** Whether each file has been read once. */
  #isComplete = false;
  /** Files that are being checked. */
  readonly #underWay = new Set<string>();
  /** The time at which a file is checked again (clock time). */
  readonly #later = new Map<string, number>();
  /** Files that were read and are not published, and since when. */
  #read = new Map<string, FileObjects>();
  #readSince: number | undefined;
  #wake: () => void = () => {};

  constructor(dependencies: ManifestSourceDependencies, options: ManifestSourceOptions) {
    const { clock, logger, fileSystem = hostFileSystem } = dependencies;
    this.#clock = clock;
    this.#fileSystem = fileSystem;
    this.#paths = options.paths.map((path) => path.replace(/(?<=.)\/+$/, ""));
    this.#files = new ManifestFiles(clock, fileSystem, options.informers);
    this.#store = new ManifestStore({ clock }, options.informers);
    this.#log = new ManifestLog({ clock, logger });
  }

  status(): readonly ManifestFileStatus[] {
    return manifestStatus(this.#files.records, this.#store, this.#listing.missing);
  }

  get filesNotShown(): number {
    return filesNotShown(this.#files.records, this.#listing.missing);
  }

  async run(signal: AbortSignal): Promise<void> {
    const startedAt = this.#clock.now();
    const rounds = async () => {
      while (!signal.aborted) {
        await this.#round(signal);
        if (!this.#isComplete) this.#log.incomplete(startedAt, this.#underWay);
        await this.#wait(signal);
      }
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
    const { files, isCertain } = this.#listing;
    const isListed = (path: string) => !isEverything || !isCertain || files.has(path);
    const looking = this.#lookAt(paths, isListed, signal);
    while (!await this.#endsIn(PERIOD_MS, looking, signal)) {
      if (!this.#isComplete) await this.#publish({ isPartial: true });
    }
    if (signal.aborted) return;
    this.#isBegun ||= isEverything && await looking;
    const isComplete = this.#isComplete || this.#isBegun && this.#underWay.size === 0;
    await this.#publish({ isPartial: !isComplete });
    if (isEverything) this.#everythingDueAt = this.#nextTime();
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
        await this.#endsIn(PATIENCE_MS, this.#look(path, isListed(path)), signal);
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    return isWhole;
  }

  async #look(path: string, isListed: boolean): Promise<void> {
    this.#underWay.add(path);
    this.#later.delete(path);
    const startedAt = this.#clock.now();
    const previous = this.#read.get(path) ?? this.#store.objectsOf(path);
    const waitsForQuiet = this.#isComplete;
    const look = await this.#files.look(path, { previous, isListed, waitsForQuiet });
    this.#underWay.delete(path);
    if (look.look === "later") this.#later.set(path, this.#clock.now() + look.ms);
    if (look.look === "changed") {
      this.#read.set(path, look.objects);
      this.#readSince = Math.min(this.#readSince ?? startedAt, startedAt);
    }
    this.#wake();
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

  /**
   * Returns when every file is checked again. Independent of the duration: on a busy machine
   * changes would be noticed late.
   */
  #nextTime(): number {
    const period = this.#listing.files.size * PERIOD_PER_FILE_MS;
    return this.#clock.now() + Math.min(Math.max(period, PERIOD_MS), LONGEST_PERIOD_MS);
  }

  /** Returns whether a path has another file or folder, or a folder has other names. */
  async #havePathsChanged(): Promise<boolean> {
    for (const [path, before] of this.#listing.states) {
      const state = await this.#fileSystem.stat(path).catch(() => undefined);
      if (state?.version !== before?.version) return true;
      if (before?.kind === "folder" && isFresh(this.#clock, before)) return true;
    }
    return false;
  }

  /** Lists the files of the paths. Returns these and the former ones. */
  async #list(): Promise<readonly string[]> {
    this.#listing = await listManifests(this.#fileSystem, this.#paths);
    this.#log.missing(this.#listing.missing);
    const paths = [...new Set([...this.#listing.files, ...this.#files.records.keys()])];
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
    const { records } = this.#files;
    this.#log.read([...files.keys()], { changes, ms, records, shadowed: this.#store.shadowed() });
  }
}
