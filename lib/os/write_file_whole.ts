/**
 * Replaces the text of a file through a new file next to it. A reader sees the old text or the new
 * one, even after a crash. An existing file keeps its mode, a new one has 0644. A symlink stays:
 * its target is replaced. Files that cannot be replaced, such as a device, a pipe or a mount, are
 * written in place.
 */
export async function writeFileWhole(link: string, text: string): Promise<void> {
  const path = await Deno.realPath(link).catch(() => link);
  const before = await Deno.stat(path).catch(() => undefined);
  if (before && !before.isFile) return await Deno.writeTextFile(path, text);
  const mode = (before?.mode ?? READABLE) & 0o777;
  const folder = path.includes("/") ? path.replace(/\/[^/]*$/, "") || "/" : ".";
  const temporary = await Deno.makeTempFile({ dir: folder, prefix: ".", suffix: ".new" });
  try {
    await Deno.writeTextFile(temporary, text);
    await Deno.chmod(temporary, mode);
    await Deno.rename(temporary, path);
  } catch (error) {
    await Deno.remove(temporary).catch(() => {});
    if (!isBusy(error)) throw error;
    await Deno.writeTextFile(path, text);
  }
}

const READABLE = 0o644;

/** `Deno.errors.Busy` is Deno's own error; the kernel's EBUSY is an Error with a code. */
function isBusy(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "EBUSY";
}
