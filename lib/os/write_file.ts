/**
 * The one way to write a file: as a whole, through a new file next to it. A reader sees the old text or
 * the new one, even after a crash.
 *
 * @module
 */
import { messageOf } from "../log/message_of.ts";

type Text = string | Iterable<string> | AsyncIterable<string>;
type Kind = "private" | "new" | "public";

/** A file of this name exists. */
export class FileExistsError extends Error {
  override name = "FileExistsError";
}

/**
 * Writes a text, in pieces if it is long. Rejects with the error of the file system, and then keeps the
 * old text and leaves nothing behind.
 *
 * - `private` replaces the file through `PATH.tmp`, a leftover of a crash included, by one of mode 0600.
 *   A symlink is never followed: a user who may write to the folder cannot redirect it to another file.
 * - `new` does the same for a name that nothing has, and throws a {@linkcode FileExistsError} otherwise.
 * - `public` keeps the mode of a file, or gives it 0644, and replaces the target of a symlink. What cannot
 *   be replaced, such as a device, a pipe or a mount, is written in place.
 */
export async function writeFile(
  name: string,
  kind: Kind,
  text: Text,
): Promise<void> {
  const path = kind === "public" ? await Deno.realPath(name).catch(() => name) : name;
  const before = kind === "private" ? undefined : await Deno.lstat(path).catch(unlessMissing);
  if (kind === "new" && before) throw existsError(path);
  if (kind === "public" && before && !before.isFile) return await writeInPlace(path, text);
  const mode = kind === "public" ? (before?.mode ?? 0o644) & 0o777 : 0o600;
  const temporary = await createTemporary(path, kind);
  try {
    {
      using file = await Deno.open(temporary, { write: true });
      await writePieces(file, text);
    }
    await Deno.chmod(temporary, mode);
    await (kind === "new" ? linkNew(temporary, path) : Deno.rename(temporary, path));
  } catch (error) {
    await Deno.remove(temporary).catch(() => {});
    if (kind === "public" && isBusy(error)) return await writeInPlace(path, text);
    throw error;
  }
}

/** Removes a file, if it exists. */
export async function removeFile(path: string): Promise<void> {
  await Deno.remove(path).catch(unlessMissing);
}

async function createTemporary(path: string, kind: Kind): Promise<string> {
  if (kind === "private") {
    const temporary = `${path}.tmp`;
    await removeFile(temporary);
    (await Deno.open(temporary, { write: true, createNew: true, mode: 0o600 })).close();
    return temporary;
  }
  const folder = path.includes("/") ? path.replace(/\/[^/]*$/, "") || "/" : ".";
  try {
    return await Deno.makeTempFile({ dir: folder, prefix: ".", suffix: ".new" });
  } catch (error) {
    // Deno's message names `tmpfile` instead of the folder.
    const reason = messageOf(error).replace(/ \(os error.*$/, "");
    throw new Error(`cannot create a file in the folder '${folder}': ${reason}`, { cause: error });
  }
}

/** Gives the name by a link, which unlike a rename never replaces another file. */
async function linkNew(temporary: string, path: string): Promise<void> {
  try {
    await Deno.link(temporary, path);
  } catch (error) {
    if (error instanceof Deno.errors.AlreadyExists) throw existsError(path);
    // A file system without links, such as that of a memory stick.
    const target = await Deno.open(path, { write: true, createNew: true, mode: 0o600 });
    const source = await Deno.open(temporary);
    await source.readable.pipeTo(target.writable).catch(async (failure) => {
      await removeFile(path);
      throw failure;
    });
  }
  await Deno.remove(temporary);
}

async function writePieces(
  file: Deno.FsFile,
  text: Text,
): Promise<void> {
  const encoder = new TextEncoder();
  for await (const piece of typeof text === "string" ? [text] : text) {
    let rest = encoder.encode(piece);
    while (rest.length > 0) rest = rest.subarray(await file.write(rest));
  }
  // Otherwise a power cut may leave the new name without content, if the disk is not a tmpfs.
  await file.sync();
}

async function writeInPlace(
  path: string,
  text: Text,
): Promise<void> {
  const pieces = typeof text === "string" ? [text] : await Array.fromAsync(text);
  await Deno.writeTextFile(path, pieces.join(""));
}

function unlessMissing(error: unknown): undefined {
  if (!(error instanceof Deno.errors.NotFound)) throw error;
}

function existsError(path: string): FileExistsError {
  return new FileExistsError(`a file '${path}' exists and is not replaced`);
}

/** `Deno.errors.Busy` is Deno's own error; the kernel's EBUSY is an Error with a code. */
function isBusy(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "EBUSY";
}
