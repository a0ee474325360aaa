/**
 * Files that kube-relay alone writes. A file of another program or the administrator is never replaced.
 *
 * @module
 */
import { messageOf } from "../../lib/log/message_of.ts";
import { readTextUpTo } from "../../lib/os/read_text_up_to.ts";
import { removeFile, writeFile } from "../../lib/os/write_file.ts";

/** 100,000 announced prefixes take 10 MB. */
const LONGEST_FILE = 256 * 1024 * 1024;

/** What files are for, in errors, and how kube-relay's are known. */
export interface OwnFileKind {
  /** E.g. `CNI configuration`. */
  readonly name: string;
  /** Of a new folder. @default {that of the umask} */
  readonly folderMode?: number;
  isOwn(text: string): boolean;
}

/** Returns the text of a file, or `undefined` if there is none. Throws an Error if it is foreign. */
export async function readOwnFile(
  path: string,
  { name, isOwn }: OwnFileKind,
): Promise<string | undefined> {
  let text: string;
  try {
    text = await readTextUpTo(path, LONGEST_FILE, { onlyFiles: true });
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw new Error(`Cannot read ${name} ${path}: ${messageOf(error)}`, { cause: error });
  }
  if (isOwn(text)) return text;
  throw new Error(
    `Cannot use ${path} for the ${name}: kube-relay did not write it. ` +
      "Remove it, or choose another path.",
  );
}

/** Replaces a file at once, mode 0600; `undefined` removes it. */
export async function writeOwnFile(
  path: string,
  { folderMode: mode, name }: OwnFileKind,
  text: string | undefined,
): Promise<void> {
  if (text === undefined) return await removeFile(path);
  try {
    const folder = path.slice(0, path.lastIndexOf("/")) || "/";
    await Deno.mkdir(folder, { recursive: true, ...(mode !== undefined && { mode }) });
    await writeFile(path, "private", text);
  } catch (error) {
    throw new Error(`Cannot write ${name} ${path}: ${messageOf(error)}`, { cause: error });
  }
}
