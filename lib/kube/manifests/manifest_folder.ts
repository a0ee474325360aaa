/**
 * Which files belong to the paths of `--manifests`.
 *
 * @module
 */
import { messageOf } from "../../log/message_of.ts";
import type { FileState } from "../../os/file_state.ts";
import type { ManifestFileSystem } from "./manifest_file_system.ts";

/** What the paths lead to at the moment. */
export interface ManifestListing {
  /** Files to read: of two that hold the same object the first by path wins. */
  readonly files: ReadonlySet<string>;
  /** What stands at each of the paths; `undefined` = nothing, or it could not be looked at. */
  readonly states: ReadonlyMap<string, FileState | undefined>;
  /** Paths that lead nowhere, and why. */
  readonly missing: ReadonlyMap<string, string>;
  /** False when something could not be looked at: a file that is not listed may be there all the same. */
  readonly isCertain: boolean;
}

/** Nothing was listed yet. */
export const NOT_LISTED: ManifestListing = {
  files: new Set(),
  states: new Map(),
  missing: new Map(),
  isCertain: false,
};

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
  const states = new Map<string, FileState | undefined>();
  const missing = new Map<string, string>();
  let isCertain = true;
  for (const path of paths) {
    try {
      // Before its names are read: a name that comes later makes another version of it.
      const state = await fileSystem.stat(path);
      states.set(path, state);
      if (state === undefined) {
        missing.set(path, "there is no such file or folder");
      } else if (state.kind === "folder") {
        for (const name of await fileSystem.list(path) ?? []) {
          if (isManifestName(name)) files.add(childOf(path, name));
        }
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

function childOf(folder: string, name: string): string {
  return folder === "/" ? `/${name}` : `${folder}/${name}`;
}
