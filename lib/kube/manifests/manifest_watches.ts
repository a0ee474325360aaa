/**
 * Watches on the folders of manifests.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { FolderWatch, ManifestFileSystem } from "./manifest_file_system.ts";

/** Told of a change: the folder, and the name in it where that is known. */
export type WatchedChange = (folder: string, name: string | undefined) => void;

interface Watched {
  readonly watch: FolderWatch;
  readonly identity: string;
}

/** Keeps one watch on each folder that matters at the moment. */
export class ManifestWatches {
  readonly #fileSystem: ManifestFileSystem;
  readonly #logger: Logger;
  readonly #onChange: WatchedChange;
  readonly #watched = new Map<string, Watched>();
  readonly #failed = new Set<string>();

  constructor(
    { fileSystem, logger }: { readonly fileSystem: ManifestFileSystem; readonly logger: Logger },
    onChange: WatchedChange,
  ) {
    this.#fileSystem = fileSystem;
    this.#logger = logger;
    this.#onChange = onChange;
  }

  /** Whether a folder could not be watched, so that changes in it have to be looked for. */
  get hasGaps(): boolean {
    return this.#failed.size > 0;
  }

  /**
   * Watches these folders, given with their identities, and no others. A folder that was deleted and
   * made again is another one. Resolves to whether there are new watches: what happened before them
   * went unseen.
   */
  async follow(folders: ReadonlyMap<string, string>): Promise<boolean> {
    for (const [folder, { watch, identity }] of this.#watched) {
      if (watch.isAlive && folders.get(folder) === identity) continue;
      this.#watched.delete(folder);
      await watch.close();
    }
    for (const folder of this.#failed) if (!folders.has(folder)) this.#failed.delete(folder);
    let hasNew = false;
    for (const [folder, identity] of folders) {
      if (!this.#watched.has(folder)) hasNew = await this.#watch(folder, identity) || hasNew;
    }
    return hasNew;
  }

  /** Ends all watches. */
  async close(): Promise<void> {
    await this.follow(new Map());
  }

  async #watch(folder: string, identity: string): Promise<boolean> {
    try {
      const watch = await this.#fileSystem.watch(folder, (name) => this.#onChange(folder, name));
      this.#watched.set(folder, { watch, identity });
      this.#failed.delete(folder);
      return true;
    } catch (error) {
      // Usual reasons: fs.inotify.max_user_watches is reached, or the folder has gone again.
      if (!this.#failed.has(folder)) {
        const reason = messageOf(error);
        this.#logger.warn("Cannot watch folder of manifests; it is looked at every 2 seconds", {
          folder,
          reason,
        });
      }
      this.#failed.add(folder);
      return false;
    }
  }
}
