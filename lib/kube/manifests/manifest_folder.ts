/**
 * Which files belong to the paths of `--manifests`, and which folders have to be watched for them.
 *
 * @module
 */
import { messageOf } from "../../log/message_of.ts";
import type { ManifestFileSystem } from "./manifest_file_system.ts";

/** What the paths lead to at the moment. */
export interface ManifestListing {
  /** Files to read, sorted: of two that hold the same object the first wins. */
  readonly files: readonly string[];
  /** Folders in which files may appear, change or go, each with its identity. */
  readonly folders: ReadonlyMap<string, string>;
  /** Paths that lead nowhere, and why. */
  readonly missing: ReadonlyMap<string, string>;
  /** False when something could not be looked at: a file that is not listed may be there all the same. */
  readonly isCertain: boolean;
}

/**
 * Whether a file of this name in a folder is read: `.yaml`, `.yml` or `.json`, not hidden. That leaves
 * out what editors leave behind: `.web.yaml.swp`, `web.yaml~`, `#web.yaml#`, `.#web.yaml`, `4913`.
 */
export function isManifestName(name: string): boolean {
  return /^[^.#].*\.(?:ya?ml|json)$/is.test(name);
}

/**
 * Looks up what the paths lead to. Only the files of a folder itself are read, not those of folders in
 * it, as `kubectl apply -f` does: a ConfigMap volume holds each file a second time in such a folder.
 */
export async function listManifests(
  fileSystem: ManifestFileSystem,
  paths: readonly string[],
): Promise<ManifestListing> {
  const files = new Set<string>();
  const folders = new Map<string, string>();
  const missing = new Map<string, string>();
  let isCertain = true;
  for (const path of paths) {
    try {
      const state = await fileSystem.stat(path);
      if (state?.kind === "folder") {
        folders.set(path, state.identity);
        for (const name of await fileSystem.list(path) ?? []) {
          if (isManifestName(name)) files.add(childOf(path, name));
        }
        continue;
      }
      if (state) files.add(path);
      else missing.set(path, "there is no such file or folder");
      // A file is saved by renaming another one over it, and one that is missing may appear.
      const parent = folderOf(path);
      const parentState = await fileSystem.stat(parent);
      if (parentState) folders.set(parent, parentState.identity);
    } catch (error) {
      isCertain = false;
      missing.set(path, messageOf(error));
    }
  }
  return { files: [...files].sort(), folders, missing, isCertain };
}

/** The path of a name in a folder. */
export function childOf(folder: string, name: string): string {
  return folder === "/" ? `/${name}` : `${folder}/${name}`;
}

/** The folder that a path stands in. */
export function folderOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "." : path.slice(0, Math.max(1, slash));
}
