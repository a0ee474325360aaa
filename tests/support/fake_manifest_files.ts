/**
 * Manifest files that are only in memory, with watches that tests can silence.
 *
 * @module
 */
import type {
  FolderChange,
  FolderWatch,
  ManifestFileState,
  ManifestFileSystem,
} from "../../lib/kube/manifests/manifest_file_system.ts";

/** A {@linkcode ManifestFileSystem} in memory. */
export class FakeManifestFiles implements ManifestFileSystem {
  /** Whether changes are told to watches. */
  tellsWatches = true;
  /** Whether new watches are refused. */
  refusesWatches = false;
  /** Paths that cannot be looked at or read. */
  readonly forbidden = new Set<string>();
  /** How often each file was read. */
  readonly reads = new Map<string, number>();
  readonly #files = new Map<string, { text: string; version: number }>();
  readonly #folders = new Map<string, number>();
  readonly #watches = new Map<FolderChange, string>();
  #sequence = 0;

  constructor(...folders: string[]) {
    for (const folder of folders) this.addFolder(folder);
  }

  /** Folders with a watch. */
  get watched(): readonly string[] {
    return [...this.#watches.values()].sort();
  }

  addFolder(folder: string): void {
    this.#folders.set(folder, ++this.#sequence);
    this.#tell(folder);
  }

  removeFolder(folder: string): void {
    for (const path of this.#files.keys()) {
      if (path.startsWith(`${folder}/`)) this.#files.delete(path);
    }
    this.#folders.delete(folder);
    this.#tell(folder);
  }

  write(path: string, text: string): void {
    this.#files.set(path, { text, version: ++this.#sequence });
    this.#tell(path);
  }

  remove(path: string): void {
    this.#files.delete(path);
    this.#tell(path);
  }

  /** Tells watches of a change that there may not be. */
  touch(path: string): void {
    this.#tell(path);
  }

  stat(path: string): Promise<ManifestFileState | undefined> {
    if (this.forbidden.has(path)) return Promise.reject(new Error(`no permission for ${path}`));
    const folder = this.#folders.get(path);
    if (folder !== undefined) {
      const identity = `folder ${folder}`;
      return Promise.resolve({ kind: "folder", identity, version: identity, size: 0 });
    }
    const file = this.#files.get(path);
    return Promise.resolve(
      file && {
        kind: "file",
        identity: path,
        version: `${file.version}`,
        size: file.text.length,
      },
    );
  }

  list(folder: string): Promise<readonly string[] | undefined> {
    if (!this.#folders.has(folder)) return Promise.resolve(undefined);
    const names = [...this.#files.keys()]
      .filter((path) => path.slice(0, path.lastIndexOf("/")) === folder)
      .map((path) => path.slice(folder.length + 1));
    return Promise.resolve(names.reverse());
  }

  readText(path: string): Promise<string> {
    this.reads.set(path, (this.reads.get(path) ?? 0) + 1);
    const file = this.#files.get(path);
    return file ? Promise.resolve(file.text) : Promise.reject(new Error(`no file ${path}`));
  }

  watch(folder: string, onChange: FolderChange): Promise<FolderWatch> {
    if (this.refusesWatches) return Promise.reject(new Error("too many watches"));
    this.#watches.set(onChange, folder);
    return Promise.resolve({
      isAlive: true,
      close: () => {
        this.#watches.delete(onChange);
        return Promise.resolve();
      },
    });
  }

  #tell(path: string): void {
    if (!this.tellsWatches) return;
    const slash = path.lastIndexOf("/");
    for (const [onChange, folder] of this.#watches) {
      if (folder === path) onChange(undefined);
      else if (folder === path.slice(0, slash)) onChange(path.slice(slash + 1));
    }
  }
}
