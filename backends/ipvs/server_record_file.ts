import type { IpFamily } from "../../lib/net/ip_address.ts";
import { readTextUpTo } from "../../lib/os/read_text_up_to.ts";
import { removeFile, writeFile } from "../../lib/os/write_file.ts";
import {
  EMPTY_SERVER_RECORD,
  MAX_RECORD_BYTES,
  NO_NODE_PORTS,
  type NodePortServers,
  parseServerRecord,
  type ServerRecord,
} from "./server_record.ts";

/** The text of one IP family's record. */
export interface ServerRecordFile {
  readonly path: string;
  /**
   * Returns the text; `undefined` = no file. Throws a SyntaxError if the file cannot be a record.
   */
  load(): Promise<string | undefined>;
  /** Replaces it whole: a reader, or a crash, sees the old text or the new one. */
  save(text: string): Promise<void>;
  /** There need not be one. */
  remove(): Promise<void>;
  /** Moves an unreadable file aside and returns its new path. */
  setAside(): Promise<string>;
}

/**
 * A file of `directory`, one for each family, for its owner only; the directory is made when needed. It
 * should not outlive a boot, as `/run` does not: virtual servers do not either.
 */
export function createServerRecordFile(
  { directory, family }: { readonly directory: string; readonly family: IpFamily },
): ServerRecordFile {
  const path = `${directory}/ipvs.${family.toLowerCase()}.json`;
  return {
    path,
    load: () => load(path),
    async save(text) {
      await Deno.mkdir(directory, { recursive: true, mode: 0o700 });
      await writeFile(path, "private", text);
    },
    async remove() {
      await removeFile(path);
      // Leftovers of a process that was killed while writing, and files set aside.
      for (const suffix of [".tmp", ".broken"]) await removeFile(`${path}${suffix}`);
    },
    async setAside() {
      await Deno.rename(path, `${path}.broken`);
      return `${path}.broken`;
    },
  };
}

/** Reads the record of an earlier run. Throws as {@linkcode ServerRecordFile.load} does. */
export async function loadServerRecord(
  file: Pick<ServerRecordFile, "load">,
): Promise<ServerRecord> {
  const text = await file.load();
  return text === undefined ? EMPTY_SERVER_RECORD : parseServerRecord(text);
}

/** Returns where an earlier run served node ports; nowhere if the record cannot be read. */
export async function recordedNodePorts(
  file: Pick<ServerRecordFile, "load">,
): Promise<NodePortServers> {
  try {
    return (await loadServerRecord(file)).nodePorts;
  } catch {
    // The serving process has reported it.
    return NO_NODE_PORTS;
  }
}

async function load(path: string): Promise<string | undefined> {
  try {
    // Opening a pipe would block.
    const { isFile } = await Deno.lstat(path);
    if (!isFile) throw new SyntaxError("it is not a regular file");
    return await readTextUpTo(path, MAX_RECORD_BYTES);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    if (error instanceof RangeError) throw new SyntaxError(error.message, { cause: error });
    throw error;
  }
}
