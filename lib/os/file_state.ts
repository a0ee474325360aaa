/**
 * What is known of a file without opening it.
 *
 * @module
 */

/** The state of a file, folder or anything else that has a name. */
export interface FileState {
  readonly kind: "file" | "folder" | "other";
  /** Tells this file from another one of the same name, before or after. */
  readonly identity: string;
  /** Differs when the content may differ: of a folder, when its names may. */
  readonly version: string;
  /** In bytes. */
  readonly size: number;
  /** Milliseconds since 1970; absent where the file system does not say. */
  readonly modifiedAtMs?: number;
}

/**
 * Looks at a file. Follows symlinks. Resolves to `undefined` when there is nothing of this name.
 *
 * Changes are looked for with this, and not with `Deno.watchFs()`: Deno opens what an event is about, and
 * a named pipe holds it up for ever, the whole process with it at the next watch or the end of one.
 */
export async function fileState(path: string): Promise<FileState | undefined> {
  try {
    const { isFile, isDirectory, dev, ino, size, mtime, ctime, mode, uid, gid } = await Deno.stat(
      path,
    );
    const identity = `${dev}:${ino}`;
    const times = `${mtime?.getTime()}:${ctime?.getTime()}`;
    // Deno's ctime has whole seconds: a file that may be read at last can have the same one.
    return {
      kind: isFile ? "file" : isDirectory ? "folder" : "other",
      identity,
      version: [identity, size, times, mode, uid, gid].join(":"),
      size,
      ...(mtime && { modifiedAtMs: mtime.getTime() }),
    };
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** Whether an error says that there is nothing. A file in the place of a folder counts as that too. */
export function isGone(error: unknown): boolean {
  return error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory;
}
