import type { ManifestFileSystem } from "../../../lib/kube/manifests/manifests.ts";
import type { FileState } from "../../../lib/os/file_state.ts";

/** A {@linkcode ManifestFileSystem} in memory. */
export class FakeManifestFiles implements ManifestFileSystem {
  /** Paths that cannot be looked at or read. */
  readonly forbidden = new Set<string>();
  /** Paths that are read only once a promise has resolved, as on a file system that hangs. */
  readonly slow = new Map<string, Promise<void>>();
  /** The number of reads of each file. */
  readonly reads = new Map<string, number>();
  readonly #files = new Map<string, { text: string; version: number }>();
  readonly #folders = new Map<string, { identity: number; version: number }>();
  #sequence = 0;

  constructor(...folders: string[]) {
    for (const folder of folders) this.addFolder(folder);
  }

  addFolder(folder: string): void {
    const identity = ++this.#sequence;
    this.#folders.set(folder, { identity, version: identity });
  }

  removeFolder(folder: string): void {
    for (const path of this.#files.keys()) {
      if (path.startsWith(`${folder}/`)) this.#files.delete(path);
    }
    this.#folders.delete(folder);
  }

  write(path: string, text: string): void {
    if (!this.#files.has(path)) this.#changeFolder(path);
    this.#files.set(path, { text, version: ++this.#sequence });
  }

  remove(path: string): void {
    this.#files.delete(path);
    this.#changeFolder(path);
  }

  stat(path: string): Promise<FileState | undefined> {
    if (this.forbidden.has(path)) return Promise.reject(new Error(`no permission for ${path}`));
    const folder = this.#folders.get(path);
    if (folder !== undefined) {
      const { identity, version } = folder;
      return Promise.resolve({
        kind: "folder",
        identity: `folder ${identity}`,
        version: `${version}`,
        size: 0,
      });
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

  isLink(): Promise<boolean> {
    return Promise.resolve(false);
  }

  list(folder: string): Promise<readonly string[] | undefined> {
    if (!this.#folders.has(folder)) return Promise.resolve(undefined);
    const names = [...this.#files.keys()]
      .filter((path) => path.slice(0, path.lastIndexOf("/")) === folder)
      .map((path) => path.slice(folder.length + 1));
    return Promise.resolve(names.reverse());
  }

  async readText(path: string): Promise<string> {
    this.reads.set(path, (this.reads.get(path) ?? 0) + 1);
    await this.slow.get(path);
    const file = this.#files.get(path);
    if (file === undefined) throw new Error(`no file ${path}`);
    return file.text;
  }

  /** A folder has another version once a name in it came or went. */
  #changeFolder(path: string): void {
    const folder = this.#folders.get(path.slice(0, path.lastIndexOf("/")));
    if (folder) folder.version = ++this.#sequence;
  }
}
