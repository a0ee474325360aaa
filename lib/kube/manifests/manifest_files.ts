/**
 * The manifest files that exist, and how they are read.
 *
 * @module
 */
import { messageOf } from "../../log/message_of.ts";
import { type FileState, fileState, isGone } from "../../os/file_state.ts";
import { readTextUpTo } from "../../os/read_text_up_to.ts";

/** The files that the paths refer to now. */
export interface ManifestListing {
  /** Files to read: if two contain the same object, the first by path wins. */
  readonly files: ReadonlySet<string>;
  /** The state of each path; `undefined` = it does not exist, or could not be read. */
  readonly states: ReadonlyMap<string, FileState | undefined>;
  /** Paths without a file, and why. */
  readonly missing: ReadonlyMap<string, string>;
  /** False if something could not be read: a file that is not listed may still exist. */
  readonly isCertain: boolean;
}

/** The state before the first listing. */
export const NOT_LISTED: ManifestListing = {
  files: new Set(),
  states: new Map(),
  missing: new Map(),
  isCertain: false,
};

/**
 * Returns whether a file of this name in a folder is read: `.yaml`, `.yml` or `.json`, not hidden.
 * This excludes files that editors leave: `.web.yaml.swp`, `web.yaml~`, `#web.yaml#`, `.#web.yaml`,
 * `4913`.
 */
export function isManifestName(name: string): boolean {
  return /^[^.#].*\.(?:ya?ml|json)$/is.test(name);
}

/**
 * Lists the files that the paths refer to. As `kubectl apply -f`, reads the files of a folder but
 * not of its subfolders: a ConfigMap volume contains each file again in a subfolder.
 */
export async function listManifests(
  fileSystem: ManifestFileSystem,
  paths: readonly string[],
): Promise<ManifestListing> {
  const files = new Set<string>();
  const states = new Map<string, FileState | undefined>();
  const missing = new Map<string, string>();
  let isCertain = true;
  for (const path of paths) {
    try {
      // Read before the names: a name that is added later changes the version.
      const state = await fileSystem.stat(path);
      states.set(path, state);
      if (state === undefined) {
        missing.set(path, "there is no such file or folder");
      } else if (state.kind === "folder") {
        const names = (await fileSystem.list(path) ?? []).filter(isManifestName);
        for (const name of names) files.add(childOf(path, name));
        const lost = await findLostName(fileSystem, names.map((name) => childOf(path, name)));
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
  return { files, states, missing, isCertain };
}

const LOST_NAME = "its name is not valid UTF-8; rename the file";

/** Returns the first path of a folder whose name has bytes that the listing had to replace. */
async function findLostName(
  fileSystem: ManifestFileSystem,
  paths: readonly string[],
): Promise<string | undefined> {
  for (const path of paths) {
    if (!path.includes("\uFFFD")) continue;
    const isThere = await fileSystem.stat(path).then((state) => state !== undefined, () => true);
    if (!isThere) return path;
  }
  return undefined;
}

function childOf(folder: string, name: string): string {
  return folder === "/" ? `/${name}` : `${folder}/${name}`;
}

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
