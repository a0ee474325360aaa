/**
 * A source of objects like an API server, for a host without one: files and folders of YAML or JSON,
 * watched while the program runs.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { Clock } from "../../os/clock.ts";
import { hostFileSystem, type ManifestFileSystem } from "./manifest_file_system.ts";
import { CONFIRM_MS, ManifestFiles } from "./manifest_files.ts";
import { childOf, isManifestName, listManifests, type ManifestListing } from "./manifest_folder.ts";
import { ManifestLog } from "./manifest_log.ts";
import { ManifestSchedule } from "./manifest_schedule.ts";
import { type ManifestFileStatus, manifestStatus } from "./manifest_status.ts";
import type { Informers } from "../informer.ts";
import { type FileObjects, ManifestStore } from "./manifest_store.ts";
import { ManifestWatches } from "./manifest_watches.ts";

/** Edges of a manifest source. */
export interface ManifestSourceDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  /** The machine's, unless a test gives another one. */
  readonly fileSystem?: ManifestFileSystem;
}

/** What a manifest source reads, and for whom. */
export interface ManifestSourceOptions {
  /** Files and folders; those that don't exist yet are waited for. */
  readonly paths: readonly string[];
  readonly informers: Informers;
  /** Only the Node of this name is read. */
  readonly nodeName: string;
}

/** A source of objects. */
export interface ManifestSource {
  /** Feeds the informers; resolves once the signal is aborted. Synced after the first look, whatever it found. */
  run(signal: AbortSignal): Promise<void>;
  /** How each file is doing. */
  status(): readonly ManifestFileStatus[];
}

/** Makes a manifest source; it does nothing until it is run. */
export function createManifestSource(
  dependencies: ManifestSourceDependencies,
  options: ManifestSourceOptions,
): ManifestSource {
  return new FileManifestSource(dependencies, options);
}

/**
 * Without any event everything is looked at this often: a watch tells nothing of network file systems,
 * of the far end of symlinks, and of what it dropped because there was too much.
 */
const POLL_MS = 10_000;
/** The same for folders that cannot be watched. */
const POLL_UNWATCHED_MS = 2_000;
/** The longest part of the time that looking at everything may take: one in a hundred. */
const POLL_SHARE = 100;

/** Files that are read at a time: of many small ones most of the time is waiting. */
const LANES = 8;

class FileManifestSource implements ManifestSource {
  readonly #clock: Clock;
  readonly #fileSystem: ManifestFileSystem;
  readonly #paths: readonly string[];
  readonly #files: ManifestFiles;
  readonly #store: ManifestStore;
  readonly #watches: ManifestWatches;
  readonly #schedule: ManifestSchedule;
  readonly #log: ManifestLog;
  /** Files that a watch has told of. */
  #changed = new Set<string>();
  #isEverythingChanged = true;
  #listing: ManifestListing = {
    files: [],
    folders: new Map(),
    missing: new Map(),
    isCertain: false,
  };

  constructor(dependencies: ManifestSourceDependencies, options: ManifestSourceOptions) {
    const { clock, logger, fileSystem = hostFileSystem } = dependencies;
    this.#clock = clock;
    this.#fileSystem = fileSystem;
    this.#paths = options.paths.map((path) => path.replace(/(?<=.)\/+$/, ""));
    this.#files = new ManifestFiles({ clock, fileSystem }, options.nodeName);
    this.#store = new ManifestStore({ clock }, options.informers);
    this.#schedule = new ManifestSchedule({ clock });
    this.#log = new ManifestLog({ clock, logger });
    this.#watches = new ManifestWatches(
      { fileSystem, logger },
      (folder, name) => this.#noteChange(folder, name),
    );
  }

  status(): readonly ManifestFileStatus[] {
    return manifestStatus({
      files: this.#files,
      store: this.#store,
      missing: this.#listing.missing,
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    try {
      await this.#lookAtEverything(signal);
      if (!signal.aborted) this.#store.markSynced();
      for (;;) {
        const wake = await this.#schedule.wait(signal);
        if (wake === "aborted") return;
        if (wake === "due" || this.#isEverythingChanged) await this.#lookAtEverything(signal);
        else await this.#lookAtChanges(signal);
      }
    } finally {
      await this.#watches.close();
    }
  }

  #noteChange(folder: string, name: string | undefined): void {
    // A ConfigMap volume changes by a symlink '..data' to which all others lead.
    if (name === undefined || name.startsWith("..")) {
      this.#isEverythingChanged = true;
      return this.#schedule.noteChange();
    }
    const path = childOf(folder, name);
    const given = this.#paths.find((own) => own === path || (folder === "." && own === name));
    if (given !== undefined) {
      this.#changed.add(given);
      // What stands there now may be a folder.
      this.#isEverythingChanged = true;
    } else if (isManifestName(name) && this.#paths.includes(folder)) {
      this.#changed.add(path);
    } else {
      return;
    }
    this.#schedule.noteChange();
  }

  async #lookAtEverything(signal: AbortSignal): Promise<void> {
    const startedAt = this.#clock.now();
    const changed = this.#changed;
    this.#changed = new Set();
    this.#isEverythingChanged = false;
    this.#listing = await listManifests(this.#fileSystem, this.#paths);
    if (await this.#watches.follow(this.#listing.folders)) {
      this.#listing = await listManifests(this.#fileSystem, this.#paths);
    }
    this.#log.missing(this.#listing.missing);
    const known = [...this.#listing.files, ...this.#files.records.keys()];
    const paths = [...new Set(known)].sort();
    const listed = new Set(this.#listing.isCertain ? this.#listing.files : paths);
    await this.#read(paths, { listed, changed, signal });
    const pollMs = this.#watches.hasGaps ? POLL_UNWATCHED_MS : POLL_MS;
    const tookMs = this.#clock.now() - startedAt;
    this.#schedule.lookAgainIn(Math.max(pollMs, tookMs * POLL_SHARE));
  }

  async #lookAtChanges(signal: AbortSignal): Promise<void> {
    const changed = this.#changed;
    this.#changed = new Set();
    await this.#read([...changed], { listed: changed, changed, signal });
  }

  async #read(
    paths: readonly string[],
    { listed, changed, signal }: {
      readonly listed: ReadonlySet<string>;
      readonly changed: ReadonlySet<string>;
      readonly signal: AbortSignal;
    },
  ): Promise<void> {
    const startedAt = this.#clock.now();
    const looks = new Map<string, FileObjects | undefined>();
    // Set here, so that objects come in the order of the files and not of what was read first.
    for (const path of paths) looks.set(path, undefined);
    const waiting = looks.keys();
    const readSome = async () => {
      for (const path of waiting) {
        if (signal.aborted) return;
        const previous = this.#store.objectsOf(path);
        const options = { previous, isForced: changed.has(path), isListed: listed.has(path) };
        const look = await this.#files.look(path, options);
        if (look.look === "changed") looks.set(path, look.objects);
        if (look.look === "suspect") this.#schedule.lookAgainIn(CONFIRM_MS);
      }
    };
    await Promise.all(Array.from({ length: LANES }, readSome));
    const files = new Map<string, FileObjects>();
    for (const [path, objects] of looks) if (objects) files.set(path, objects);
    if (files.size === 0 || signal.aborted) return;
    const changes = await this.#store.update(files);
    this.#log.read([...files.keys()], {
      changes,
      ms: this.#clock.now() - startedAt,
      records: this.#files.records,
      shadowed: this.#store.shadowed(),
    });
  }
}
