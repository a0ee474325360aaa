/**
 * The files that manifests are read from, and who tells of their changes.
 *
 * @module
 */

/** What is known of a file without reading it. */
export interface ManifestFileState {
  readonly kind: "file" | "folder" | "other";
  /** Tells this file from another one of the same name, before or after. */
  readonly identity: string;
  /** Differs when the content may differ. */
  readonly version: string;
  /** In bytes. */
  readonly size: number;
}

/** A change in a watched folder: the name inside of it, or `undefined` when that is not known. */
export type FolderChange = (name: string | undefined) => void;

/** A watch. */
export interface FolderWatch {
  /** Whether it still runs. One on a folder that was deleted runs and hears nothing. */
  readonly isAlive: boolean;
  close(): Promise<void>;
}

/** What the manifest source needs of the machine. */
export interface ManifestFileSystem {
  /** Follows symlinks. `undefined` when there is nothing of this name. */
  stat(path: string): Promise<ManifestFileState | undefined>;
  /** Names in a folder; `undefined` when there is none. */
  list(folder: string): Promise<readonly string[] | undefined>;
  readText(path: string): Promise<string>;
  /** Calls back for each change of a name in the folder, or of the content behind it. Rejects when that can't be had. */
  watch(folder: string, onChange: FolderChange): Promise<FolderWatch>;
}

/** The bit of a folder's mode that lets everybody put things into it. */
const WRITABLE_BY_ALL = 0o002;

/** The machine's files. */
export const hostFileSystem: ManifestFileSystem = {
  async stat(path) {
    const info = await orUndefined(Deno.stat(path));
    if (!info) return undefined;
    const identity = `${info.dev}:${info.ino}`;
    const times = `${info.mtime?.getTime()}:${info.ctime?.getTime()}`;
    return {
      kind: info.isFile ? "file" : info.isDirectory ? "folder" : "other",
      identity,
      version: `${identity}:${info.size}:${times}`,
      size: info.size,
    };
  },

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

  readText: (path) => Deno.readTextFile(path),

  async watch(folder, onChange) {
    await refuseIfOpenToAll(folder);
    // Events name the folder by another path than it was asked for when that one is relative.
    const folderNames = new Set([lastName(folder), lastName(await Deno.realPath(folder))]);
    const watcher = Deno.watchFs(folder, { recursive: false });
    let isAlive = true;
    const ended = (async () => {
      for await (const { kind, paths } of watcher) {
        // Our own reading is an access.
        if (kind === "access") continue;
        if (paths.length === 0) onChange(undefined);
        for (const name of paths.map(lastName)) {
          onChange(folderNames.has(name) ? undefined : name);
        }
      }
    })().catch(() => onChange(undefined)).finally(() => isAlive = false);
    return {
      get isAlive() {
        return isAlive;
      },
      async close() {
        if (isAlive) watcher.close();
        await ended;
      },
    };
  },
};

function lastName(path: string): string {
  const trimmed = path.replace(/\/+$/, "");
  return trimmed.slice(trimmed.lastIndexOf("/") + 1);
}

async function orUndefined<T>(promise: Promise<T>): Promise<T | undefined> {
  try {
    return await promise;
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** A file in the place of a folder counts as "not there" too. */
function isGone(error: unknown): boolean {
  return error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory;
}

/**
 * Deno opens what an event is about, and a named pipe holds it up for ever, the whole process with it
 * at the next watch or the end of one (seen with 2.9.6). Where anybody may put one, as in /tmp,
 * nothing is watched; such folders are looked at every now and then instead.
 */
async function refuseIfOpenToAll(folder: string): Promise<void> {
  const { mode } = await Deno.stat(folder);
  if (mode === null || (mode & WRITABLE_BY_ALL) === 0) return;
  throw new Deno.errors.PermissionDenied(
    "everybody may write to it, and a named pipe there would hold up the process; " +
      "take manifests from a folder of your own",
  );
}
