/**
 * Writes a file so that nobody ever sees a part of it.
 *
 * @module
 */

/**
 * Puts a text in the place of a file, by way of a new file beside it. A reader sees the old text or
 * the new one, also after a crash. The mode is that of a file that is there already, else 0644. A
 * symlink stays one: the file that it leads to is replaced. What cannot be replaced, as a device, a
 * pipe or a file that is a mount of its own, is written to as it stands.
 */
export async function writeFileWhole(link: string, text: string): Promise<void> {
  const path = await Deno.realPath(link).catch(() => link);
  const before = await Deno.stat(path).catch(() => undefined);
  if (before && !before.isFile) return await Deno.writeTextFile(path, text);
  const mode = (before?.mode ?? READABLE) & 0o777;
  const folder = path.includes("/") ? path.replace(/\/[^/]*$/, "") || "/" : ".";
  const beside = await Deno.makeTempFile({ dir: folder, prefix: ".", suffix: ".new" });
  try {
    await Deno.writeTextFile(beside, text);
    await Deno.chmod(beside, mode);
    await Deno.rename(beside, path);
  } catch (error) {
    await Deno.remove(beside).catch(() => {});
    if (!isBusy(error)) throw error;
    await Deno.writeTextFile(path, text);
  }
}

const READABLE = 0o644;

/** `Deno.errors.Busy` is for what Deno itself holds; the kernel's EBUSY is an Error with a code. */
function isBusy(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "EBUSY";
}
