/**
 * Tells when a file has other content: written in place, renamed over, or reached by a symlink that
 * was swapped, as in a mounted ConfigMap.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import type { Clock } from "../os/clock.ts";
import { type FolderChange, type FolderWatch, watchFolder } from "../os/folder_watch.ts";

/** Writers need several steps: a file counts as written when it has stayed the same for this time. */
const SETTLE_MS = 100;
/** One that never settles is read all the same. */
const LONGEST_SETTLE_MS = 2_000;
/** How often is looked where no watch can be had, or the file is gone. */
const GAP_POLL_MS = 2_000;
/** How often is looked beside a watch: a folder that was moved away says nothing. */
const SAFETY_POLL_MS = 15_000;

/** What the watch needs of the machine. */
export interface WatchedFileSystem {
  /** Differs when the content may differ; follows symlinks; `undefined` = there is none. */
  version(path: string): Promise<string | undefined>;
  /** The path without symlinks. Rejects when there is nothing. */
  realPath(path: string): Promise<string>;
  /** Rejects when that can't be had. */
  watch(folder: string, onChange: FolderChange): Promise<FolderWatch>;
}

/** The machine's files. */
export const hostWatchedFiles: WatchedFileSystem = {
  async version(path) {
    try {
      const { dev, ino, size, mtime, ctime, mode, uid, gid } = await Deno.stat(path);
      // Deno's ctime has whole seconds: a file that may be read at last can have the same one.
      return [dev, ino, size, mtime?.getTime(), ctime?.getTime(), mode, uid, gid].join(":");
    } catch {
      return undefined;
    }
  },
  realPath: (path) => Deno.realPath(path),
  watch: watchFolder,
};

/** What is needed to watch a file. */
export interface WatchFileDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly files: WatchedFileSystem;
}

/** Which file, and who is told. */
export interface WatchFileOptions {
  readonly path: string;
  readonly signal: AbortSignal;
  /** Told once at the start, and of each change; `false` = the file is gone. A rejection ends the watch. */
  readonly onChange: (exists: boolean) => Promise<void>;
}

/** Watches until the signal is aborted. */
export async function watchFile(
  dependencies: WatchFileDependencies,
  { path, signal, onChange }: WatchFileOptions,
): Promise<void> {
  const watches = new WatchedFolders(dependencies, path);
  const { clock, files } = dependencies;
  let told: string | undefined | null = null;
  try {
    while (!signal.aborted) {
      await watches.follow();
      const version = await settledVersion(dependencies, path);
      if (version !== told) {
        told = version;
        await onChange(version !== undefined);
        continue;
      }
      const pollMs = version === undefined || watches.hasGaps ? GAP_POLL_MS : SAFETY_POLL_MS;
      do await watches.changed(clock, { pollMs, signal }); while (
        !signal.aborted && !watches.hasNews && await files.version(path) === told
      );
    }
  } finally {
    await watches.close();
  }
}

async function settledVersion(
  { clock, files }: WatchFileDependencies,
  path: string,
): Promise<string | undefined> {
  const deadline = clock.now() + LONGEST_SETTLE_MS;
  let version = await files.version(path);
  for (;;) {
    await clock.sleep(SETTLE_MS);
    const next = await files.version(path);
    if (next === version || clock.now() >= deadline) return next;
    version = next;
  }
}

/** The watches on the folder of the path and on that of the file behind its symlinks. */
class WatchedFolders {
  readonly #dependencies: WatchFileDependencies;
  readonly #path: string;
  readonly #watches = new Map<string, { readonly watch: FolderWatch; readonly identity: string }>();
  readonly #failed = new Set<string>();
  #hasNews = false;
  #wake: () => void = () => {};

  constructor(dependencies: WatchFileDependencies, path: string) {
    this.#dependencies = dependencies;
    this.#path = path;
  }

  /** Whether changes have to be looked for. */
  get hasGaps(): boolean {
    return this.#failed.size > 0;
  }

  /** Whether something was heard since the last {@linkcode follow}. */
  get hasNews(): boolean {
    return this.#hasNews;
  }

  /** Watches the folders that count now, and no others. */
  async follow(): Promise<void> {
    this.#hasNews = false;
    const wanted = await this.#folders();
    for (const [folder, { watch, identity }] of this.#watches) {
      if (watch.isAlive && wanted.get(folder) === identity) continue;
      this.#watches.delete(folder);
      await watch.close();
    }
    for (const [folder, identity] of wanted) {
      if (!this.#watches.has(folder)) await this.#watch(folder, identity);
    }
    for (const folder of this.#failed) if (!wanted.has(folder)) this.#failed.delete(folder);
  }

  /** Resolves on a change, after the time given, or when the signal is aborted. */
  changed(
    clock: Clock,
    { pollMs, signal }: { readonly pollMs: number; readonly signal: AbortSignal },
  ): Promise<void> {
    if (this.#hasNews || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        timer.cancel();
        signal.removeEventListener("abort", wake);
        this.#wake = () => {};
        resolve();
      };
      const timer = clock.setTimer(pollMs, wake);
      signal.addEventListener("abort", wake);
      this.#wake = wake;
    });
  }

  async close(): Promise<void> {
    for (const { watch } of this.#watches.values()) await watch.close();
    this.#watches.clear();
  }

  /** Folders with their identities: one that was made anew is another one. */
  async #folders(): Promise<ReadonlyMap<string, string>> {
    const { files } = this.#dependencies;
    const folders = new Map<string, string>();
    const real = await files.realPath(this.#path).catch(() => this.#path);
    for (const folder of [folderOf(this.#path), folderOf(real)]) {
      folders.set(folder, await identityOf(files, folder));
    }
    return folders;
  }

  async #watch(folder: string, identity: string): Promise<void> {
    const { files, logger } = this.#dependencies;
    try {
      const watch = await files.watch(folder, () => {
        this.#hasNews = true;
        this.#wake();
      });
      this.#watches.set(folder, { watch, identity });
      this.#failed.delete(folder);
    } catch (error) {
      // Usual reasons: fs.inotify.max_user_watches is reached, or the folder is gone.
      if (!this.#failed.has(folder)) {
        const reason = messageOf(error);
        const message = "Cannot watch folder of the configuration file; it is looked at instead";
        logger.warn(message, { folder, everySeconds: GAP_POLL_MS / 1_000, reason });
      }
      this.#failed.add(folder);
    }
  }
}

/** Device and inode, which stay when names in the folder change. */
async function identityOf(files: WatchedFileSystem, folder: string): Promise<string> {
  const version = await files.version(folder);
  return version === undefined ? "" : version.split(":").slice(0, 2).join(":");
}

function folderOf(path: string): string {
  const index = path.lastIndexOf("/");
  return index < 0 ? "." : path.slice(0, index) || "/";
}
