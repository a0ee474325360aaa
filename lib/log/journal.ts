/**
 * Whether standard error is read by journald, which stamps lines itself.
 *
 * @module
 */
import { fstatSync } from "node:fs";

/** Device and inode of a file, as they identify it. */
interface FileIdentity {
  readonly dev: number;
  readonly ino: number;
}

/**
 * Compares `JOURNAL_STREAM` with the file behind standard error. The variable alone says nothing:
 * children inherit it, also those whose output was led elsewhere (systemd.exec(5)).
 */
export function logsToJournal(
  env: (name: string) => string | undefined,
  stderr: () => FileIdentity = () => fstatSync(2),
): boolean {
  const journalStream = env("JOURNAL_STREAM");
  if (!journalStream) return false;
  try {
    const { dev, ino } = stderr();
    return journalStream === `${dev}:${ino}`;
  } catch {
    return false;
  }
}
