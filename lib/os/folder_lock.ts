import type { Clock } from "./clock.ts";

/** The time to wait for the lock. */
interface FolderLockOptions {
  readonly maxMs: number;
  /** Ends the wait without the lock. */
  readonly signal?: AbortSignal;
}

const STEP_MS = 50;

/**
 * Waits for an advisory lock on a folder, which leaves no file behind. Its disposal, or the end of
 * the process, releases it. Resolves to `undefined` if another process keeps it, or if the folder
 * cannot be read.
 */
export async function lockFolder(
  { clock }: { readonly clock: Clock },
  path: string,
  { maxMs, signal }: FolderLockOptions,
): Promise<Disposable | undefined> {
  const folder = await Deno.open(path).catch(() => undefined);
  if (folder === undefined) return undefined;
  const until = clock.now() + maxMs;
  try {
    while (!await folder.tryLock(true)) {
      if (clock.now() >= until) throw new Error("it is taken");
      await clock.sleep(STEP_MS, signal);
    }
    return folder;
  } catch {
    folder.close();
    return undefined;
  }
}
