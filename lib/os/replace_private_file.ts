/**
 * Writes a small file of the program's own, for its owner only.
 *
 * @module
 */

/** Nobody but the owner may read or write it. */
const OWNER_ONLY = 0o600;

/**
 * Puts a text in the place of a file, by way of `PATH.tmp`. A reader sees the old text or the new one,
 * also after a crash; the file has mode 0600. What a crash left by that other name is replaced, and a
 * symlink is never followed: whoever may write to the folder cannot point it at another file. Rejects
 * with what the file system says, and the old text is there then.
 */
export async function replacePrivateFile(path: string, text: string): Promise<void> {
  const temporary = `${path}.tmp`;
  await removeFile(temporary);
  {
    using file = await Deno.open(temporary, { write: true, createNew: true, mode: OWNER_ONLY });
    let rest: Uint8Array = new TextEncoder().encode(text);
    while (rest.length > 0) rest = rest.subarray(await file.write(rest));
    // Without it a power cut may leave the new name with no content, where the disk is not a tmpfs.
    await file.sync();
  }
  await Deno.rename(temporary, path);
}

/** Removes a file; there need not be one. */
export async function removeFile(path: string): Promise<void> {
  try {
    await Deno.remove(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
