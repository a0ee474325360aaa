import { type FileState, fileState, isGone } from "../../os/file_state.ts";
import { readTextUpTo } from "../../os/read_text_up_to.ts";

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
