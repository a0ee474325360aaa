/**
 * The files that manifests are read from.
 *
 * @module
 */
import { type FileState, fileState, isGone } from "../../os/file_state.ts";
import { readTextUpTo } from "../../os/read_text_up_to.ts";

/** What the manifest source needs of the machine. */
export interface ManifestFileSystem {
  /** Follows symlinks. `undefined` when there is nothing of this name. */
  stat(path: string): Promise<FileState | undefined>;
  /** Names in a folder; `undefined` when there is none. */
  list(folder: string): Promise<readonly string[] | undefined>;
  /** Rejects for what is no regular file, without waiting for it, and after `maxBytes`. */
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
