/**
 * A lock that processes which know of it keep to: on a folder, so that no file is left behind.
 *
 * @module
 */
import type { Clock } from "./clock.ts";

/** How long is waited for it. */
interface FolderLockOptions {
  readonly maxMs: number;
  /** Ends waiting: then it is not had. */
  readonly signal?: AbortSignal;
}

const STEP_MS = 50;

/**
 * Waits until nobody else has the lock; its disposal gives it back, as does the end of the process.
 * Resolves to `undefined` where it can't be had in time, or the folder can't be read.
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
