/**
 * Detects new content of a file: written in place, renamed over, or reached by a swapped symlink,
 * as in a mounted ConfigMap.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";
import { fileState } from "../os/file_state.ts";

/** The interval at which the file is checked. */
const POLL_MS = 1_000;
/** Writers need several steps: a file is complete when it has stayed the same for this time. */
const SETTLE_MS = 100;
/** A file that never settles is read after this time. */
const LONGEST_SETTLE_MS = 2_000;

/** The file and the receiver of changes. */
interface WatchFileOptions {
  readonly path: string;
  readonly signal: AbortSignal;
  /**
   * Called once at the start, and for each change; `false` = the file does not exist. A rejection
   * ends the watch.
   */
  readonly onChange: (exists: boolean) => Promise<void>;
}

/** Watches until the signal is aborted. */
export async function watchFile(
  { clock }: { readonly clock: Clock },
  { path, signal, onChange }: WatchFileOptions,
): Promise<void> {
  let reported: string | undefined | null = null;
  while (!signal.aborted) {
    const version = await settledVersion(clock, { path, reported });
    if (version === reported) {
      await clock.sleep(POLL_MS, signal).catch(() => {});
    } else {
      reported = version;
      await onChange(reported !== undefined);
    }
  }
}

/** Returns the version at which a file has settled; at once if it is still the reported one. */
async function settledVersion(
  clock: Clock,
  { path, reported }: { readonly path: string; readonly reported: string | undefined | null },
): Promise<string | undefined> {
  const deadline = clock.now() + LONGEST_SETTLE_MS;
  let version = await versionOf(path);
  if (version === reported) return version;
  for (;;) {
    await clock.sleep(SETTLE_MS);
    const next = await versionOf(path);
    if (next === version || clock.now() >= deadline) return next;
    version = next;
  }
}

/** A file that cannot be inspected counts as gone. */
async function versionOf(path: string): Promise<string | undefined> {
  return (await fileState(path).catch(() => undefined))?.version;
}
