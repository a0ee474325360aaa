/**
 * A source of objects for a host without an API server: files and folders of YAML or JSON, checked
 * repeatedly while the program runs.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { Clock } from "../../os/clock.ts";
import { whenAborted } from "../../os/when_aborted.ts";
import { hostFileSystem, type ManifestFileSystem } from "./manifest_file_system.ts";
import { isFresh, ManifestFiles } from "./manifest_files.ts";
import { listManifests, type ManifestListing, NOT_LISTED } from "./manifest_folder.ts";
import { ManifestLog } from "./manifest_log.ts";
import { ManifestReader } from "./manifest_reader.ts";
import { filesNotShown, type ManifestFileStatus, manifestStatus } from "./manifest_status.ts";
import type { InformerSet } from "../informer_set.ts";
import { ManifestStore } from "./manifest_store.ts";

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

/** A manifest source; it does nothing before `run()`. */
export class FileManifestSource implements ManifestSource {
  readonly #clock: Clock;
  readonly #fileSystem: ManifestFileSystem;
  readonly #paths: readonly string[];
  readonly #files: ManifestFiles;
  readonly #store: ManifestStore;
  readonly #looks: ManifestReader;
  readonly #log: ManifestLog;
  #listing: ManifestListing = NOT_LISTED;
  #everythingDueAt = 0;
  /** Whether each file has been started. */
  #isBegun = false;
  /** Whether each file has been read once. */
  #isComplete = false;

  constructor(dependencies: ManifestSourceDependencies, options: ManifestSourceOptions) {
    const { clock, logger, fileSystem = hostFileSystem } = dependencies;
    this.#clock = clock;
    this.#fileSystem = fileSystem;
    this.#paths = options.paths.map((path) => path.replace(/(?<=.)\/+$/, ""));
    this.#files = new ManifestFiles({ clock, fileSystem }, options.informers);
    this.#store = new ManifestStore({ clock }, options.informers);
    this.#looks = new ManifestReader({ clock, files: this.#files, store: this.#store });
    this.#log = new ManifestLog({ clock, logger });
  }

  status(): readonly ManifestFileStatus[] {
    return manifestStatus({
      files: this.#files,
      store: this.#store,
      missing: this.#listing.missing,
    });
  }

  get filesNotShown(): number {
    return filesNotShown({ files: this.#files, missing: this.#listing.missing });
  }

  async run(signal: AbortSignal): Promise<void> {
    const startedAt = this.#clock.now();
    const rounds = async () => {
      while (!signal.aborted) {
        await this.#round(signal);
        if (!this.#isComplete) this.#log.incomplete(startedAt, this.#looks.underWay);
        await this.#looks.wait(PERIOD_MS, signal);
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
    const due = this.#looks.takeDue();
    const isEverything = startedAt >= this.#everythingDueAt || await this.#havePathsChanged();
    const paths = isEverything ? await this.#list() : due;
    const { files, isCertain } = this.#listing;
    const looking = this.#looks.lookAt(paths, {
      isListed: (path) => !isEverything || !isCertain || files.has(path),
      waitsForQuiet: this.#isComplete,
      signal,
    });
    while (!await this.#looks.endsIn(PERIOD_MS, { looking, signal })) {
      if (!this.#isComplete) await this.#publish({ isPartial: true });
    }
    if (signal.aborted) return;
    this.#isBegun ||= isEverything && await looking;
    const isComplete = this.#isComplete || this.#isBegun && this.#looks.underWay.size === 0;
    await this.#publish({ isPartial: !isComplete });
    if (isEverything) this.#everythingDueAt = this.#nextTime();
    if (!isComplete || this.#isComplete) return;
    this.#isComplete = true;
    this.#store.markSynced();
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
    const { files, ms } = this.#looks.takeRead();
    if (files.size === 0 && isPartial) return;
    const changes = await this.#store.update(files, { isPartial });
    if (files.size === 0) return;
    this.#log.read([...files.keys()], {
      changes,
      ms,
      records: this.#files.records,
      shadowed: this.#store.shadowed(),
    });
  }
}
