/**
 * Writes a file that was not there, for its owner only.
 *
 * @module
 */

/** Nobody but the owner may read or write it. */
const OWNER_ONLY = 0o600;

/** A file is in the place of a new one. */
export class FileExistsError extends Error {
  override name = "FileExistsError";
}

/**
 * Writes the pieces to a new file of mode 0600, by way of a file beside it: the name shows the whole
 * text or nothing, also after a crash. What is there already, a symlink too, stays as it is: throws a
 * {@linkcode FileExistsError}. Rejects with what the file system says, and leaves nothing behind.
 */
export async function writeNewFile(
  path: string,
  pieces: Iterable<string> | AsyncIterable<string>,
): Promise<void> {
  if (await isThere(path)) throw existsError(path);
  const folder = path.includes("/") ? path.replace(/\/[^/]*$/, "") || "/" : ".";
  const beside = await Deno.makeTempFile({ dir: folder, prefix: ".", suffix: ".new" });
  try {
    {
      using file = await Deno.open(beside, { write: true });
      await writePieces(file, pieces);
    }
    await Deno.chmod(beside, OWNER_ONLY);
    await giveName(beside, path);
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) throw existsError(path);
    throw error;
  } finally {
    await Deno.remove(beside).catch(() => {});
  }
}

/** By a link, which unlike a rename never takes the place of another file. */
async function giveName(beside: string, path: string): Promise<void> {
  try {
    await Deno.link(beside, path);
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) throw error;
    // A file system without links, such as that of a memory stick.
    await copyToNew(beside, path);
  }
}

async function copyToNew(from: string, path: string): Promise<void> {
  using target = await Deno.open(path, { write: true, createNew: true, mode: OWNER_ONLY });
  try {
    using source = await Deno.open(from);
    await source.readable.pipeTo(target.writable);
  } catch (error) {
    await Deno.remove(path).catch(() => {});
    throw error;
  }
}

async function writePieces(
  file: Deno.FsFile,
  pieces: Iterable<string> | AsyncIterable<string>,
): Promise<void> {
  const encoder = new TextEncoder();
  for await (const piece of pieces) {
    let rest = encoder.encode(piece);
    while (rest.length > 0) rest = rest.subarray(await file.write(rest));
  }
  await file.sync();
}

async function isThere(path: string): Promise<boolean> {
  try {
    await Deno.lstat(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

function existsError(path: string): FileExistsError {
  return new FileExistsError(`a file '${path}' exists and is not replaced`);
}
