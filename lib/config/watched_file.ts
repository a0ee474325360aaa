/**
 * Tells when a file has other content: written in place, renamed over, or reached by a symlink that
 * was swapped, as in a mounted ConfigMap.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";
import { fileState } from "../os/file_state.ts";

/** How often the file is looked at. */
const POLL_MS = 1_000;
/** Writers need several steps: a file counts as written when it has stayed the same for this time. */
const SETTLE_MS = 100;
/** One that never settles is read all the same. */
const LONGEST_SETTLE_MS = 2_000;

/** Which file, and who is told. */
interface WatchFileOptions {
  readonly path: string;
  readonly signal: AbortSignal;
  /** Told once at the start, and of each change; `false` = the file is gone. A rejection ends the watch. */
  readonly onChange: (exists: boolean) => Promise<void>;
}

/** Watches until the signal is aborted. */
export async function watchFile(
  { clock }: { readonly clock: Clock },
  { path, signal, onChange }: WatchFileOptions,
): Promise<void> {
  let told: string | undefined | null = null;
  while (!signal.aborted) {
    const version = await settledVersion(clock, { path, told });
    if (version === told) {
      await clock.sleep(POLL_MS, signal).catch(() => {});
    } else {
      told = version;
      await onChange(told !== undefined);
    }
  }
}

/** The version at which a file has settled; at once the one that was told of, if it still is. */
async function settledVersion(
  clock: Clock,
  { path, told }: { readonly path: string; readonly told: string | undefined | null },
): Promise<string | undefined> {
  const deadline = clock.now() + LONGEST_SETTLE_MS;
  let version = await versionOf(path);
  if (version === told) return version;
  for (;;) {
    await clock.sleep(SETTLE_MS);
    const next = await versionOf(path);
    if (next === version || clock.now() >= deadline) return next;
    version = next;
  }
}

/** One that cannot be looked at counts as gone. */
async function versionOf(path: string): Promise<string | undefined> {
  return (await fileState(path).catch(() => undefined))?.version;
}
