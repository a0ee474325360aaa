/**
 * Watching a folder: the only file that asks the kernel for it.
 *
 * @module
 */

/** A change in a watched folder: the name inside of it, or `undefined` when that is not known. */
export type FolderChange = (name: string | undefined) => void;

/** A watch. */
export interface FolderWatch {
  /** Whether it still runs. One on a folder that was deleted runs and hears nothing. */
  readonly isAlive: boolean;
  close(): Promise<void>;
}

/** The bit of a folder's mode that lets everybody put things into it. */
const WRITABLE_BY_ALL = 0o002;

/** Calls back for each change of a name in the folder, or of the content behind it. Rejects when that can't be had. */
export async function watchFolder(folder: string, onChange: FolderChange): Promise<FolderWatch> {
  await refuseIfOpenToAll(folder);
  // Events name the folder by another path than it was asked for when that one is relative.
  const folderNames = new Set([lastName(folder), lastName(await Deno.realPath(folder))]);
  const watcher = Deno.watchFs(folder, { recursive: false });
  let isAlive = true;
  const ended = (async () => {
    for await (const { kind, paths } of watcher) {
      // Our own reading is an access.
      if (kind === "access") continue;
      if (paths.length === 0) onChange(undefined);
      for (const name of paths.map(lastName)) {
        onChange(folderNames.has(name) ? undefined : name);
      }
    }
  })().catch(() => onChange(undefined)).finally(() => isAlive = false);
  return {
    get isAlive() {
      return isAlive;
    },
    async close() {
      if (isAlive) watcher.close();
      await ended;
    },
  };
}

function lastName(path: string): string {
  const trimmed = path.replace(/\/+$/, "");
  return trimmed.slice(trimmed.lastIndexOf("/") + 1);
}

/**
 * Deno opens what an event is about, and a named pipe holds it up for ever, the whole process with it
 * at the next watch or the end of one (seen with 2.9.6). Where anybody may put one, as in /tmp,
 * nothing is watched; such folders are looked at every now and then instead.
 */
async function refuseIfOpenToAll(folder: string): Promise<void> {
  const { mode } = await Deno.stat(folder);
  if (mode === null || (mode & WRITABLE_BY_ALL) === 0) return;
  throw new Deno.errors.PermissionDenied(
    "everybody may write to it, and a named pipe there would hold up the process; " +
      "keep the files in a folder of your own",
  );
}
