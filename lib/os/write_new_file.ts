import { messageOf } from "../log/message_of.ts";

/** Only the owner may read or write the file. */
const OWNER_ONLY = 0o600;

/** A file of this name exists. */
export class FileExistsError extends Error {
  override name = "FileExistsError";
}

/**
 * Writes the pieces to a new file of mode 0600, through a file next to it: the name shows the whole
 * text or nothing, even after a crash. Keeps an existing file or symlink and throws a {@linkcode
 * FileExistsError}. Rejects with the error of the file system, and leaves nothing behind.
 */
export async function writeNewFile(
  path: string,
  pieces: Iterable<string> | AsyncIterable<string>,
): Promise<void> {
  if (await isThere(path)) throw existsError(path);
  const folder = path.includes("/") ? path.replace(/\/[^/]*$/, "") || "/" : ".";
  const temporary = await createTemporary(folder);
  try {
    {
      using file = await Deno.open(temporary, { write: true });
      await writePieces(file, pieces);
    }
    await Deno.chmod(temporary, OWNER_ONLY);
    await giveName(temporary, path);
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) throw existsError(path);
    throw error;
  } finally {
    await Deno.remove(temporary).catch(() => {});
  }
}

async function createTemporary(folder: string): Promise<string> {
  try {
    return await Deno.makeTempFile({ dir: folder, prefix: ".", suffix: ".new" });
  } catch (error) {
    // Deno's message names `tmpfile` instead of the folder.
    const reason = messageOf(error).replace(/ \(os error.*$/, "");
    throw new Error(`cannot create a file in the folder '${folder}': ${reason}`, { cause: error });
  }
}

/** Creates the file by a link, which unlike a rename never replaces another file. */
async function giveName(temporary: string, path: string): Promise<void> {
  try {
    await Deno.link(temporary, path);
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) throw error;
    // A file system without links, such as that of a memory stick.
    await copyToNew(temporary, path);
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
