/**
 * The files that manifests are read from, and who tells of their changes.
 *
 * @module
 */
import { type FolderChange, type FolderWatch, watchFolder } from "../../os/folder_watch.ts";

export type { FolderChange, FolderWatch } from "../../os/folder_watch.ts";

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

/** The machine's files. */
export const hostFileSystem: ManifestFileSystem = {
  async stat(path) {
    const info = await orUndefined(Deno.stat(path));
    if (!info) return undefined;
    const identity = `${info.dev}:${info.ino}`;
    const times = `${info.mtime?.getTime()}:${info.ctime?.getTime()}`;
    // Deno's ctime has whole seconds: a file that may be read at last can have the same one.
    const rights = `${info.mode}:${info.uid}:${info.gid}`;
    return {
      kind: info.isFile ? "file" : info.isDirectory ? "folder" : "other",
      identity,
      version: `${identity}:${info.size}:${times}:${rights}`,
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

  watch: watchFolder,
};

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
