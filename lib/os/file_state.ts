/** The state of a file, folder or anything else that has a name. */
export interface FileState {
  readonly kind: "file" | "folder" | "other";
  /** Identifies this file among former and later files of the same name. */
  readonly identity: string;
  /** Changes when the content may have changed: for a folder, its names. */
  readonly version: string;
  /** In bytes. */
  readonly size: number;
  /** Milliseconds since 1970; absent if the file system does not provide it. */
  readonly modifiedAtMs?: number;
}

/**
 * Returns the state of a file, or `undefined` if nothing has this name. Follows symlinks.
 *
 * Changes are detected by polling this, and not with `Deno.watchFs()`: Deno opens the file of an
 * event, and a named pipe blocks it forever, and the whole process at the next watch or the end of
 * one.
 */
export async function fileState(path: string): Promise<FileState | undefined> {
  try {
    const { isFile, isDirectory, dev, ino, size, mtime, ctime, mode, uid, gid } = await Deno.stat(
      path,
    );
    const identity = `${dev}:${ino}`;
    const times = `${mtime?.getTime()}:${ctime?.getTime()}`;
    // Deno's ctime has whole seconds: a file that becomes readable can have the same one.
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

/** Whether an error means that nothing has this name. A file in place of a folder counts too. */
export function isGone(error: unknown): boolean {
  return error instanceof Deno.errors.NotFound || error instanceof Deno.errors.NotADirectory;
}
