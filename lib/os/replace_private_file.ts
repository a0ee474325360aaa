/** Only the owner may read or write the file. */
const OWNER_ONLY = 0o600;

/**
 * Replaces the text of a file through `PATH.tmp`. A reader sees the old text or the new one, even
 * after a crash; the file has mode 0600. A leftover of a crash is replaced, and a symlink is never
 * followed: a user who may write to the folder cannot redirect it to another file. Rejects with the
 * error of the file system and keeps the old text.
 */
export async function replacePrivateFile(path: string, text: string): Promise<void> {
  const temporary = `${path}.tmp`;
  await removeFile(temporary);
  {
    using file = await Deno.open(temporary, { write: true, createNew: true, mode: OWNER_ONLY });
    let rest: Uint8Array = new TextEncoder().encode(text);
    while (rest.length > 0) rest = rest.subarray(await file.write(rest));
    // Otherwise a power cut may leave the new name without content, if the disk is not a tmpfs.
    await file.sync();
  }
  await Deno.rename(temporary, path);
}

/** Removes a file, if it exists. */
export async function removeFile(path: string): Promise<void> {
  try {
    await Deno.remove(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
