/**
 * Where the record of virtual servers is kept.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { readTextUpTo } from "../../lib/os/read_text_up_to.ts";
import { removeFile, replacePrivateFile } from "../../lib/os/replace_private_file.ts";
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
  /** `undefined` = there is none. Throws a SyntaxError where it can be none of ours. */
  load(): Promise<string | undefined>;
  /** Replaces it whole: a reader, or a crash, sees the old text or the new one. */
  save(text: string): Promise<void>;
  /** There need not be one. */
  remove(): Promise<void>;
  /** Puts what cannot be understood aside, and returns where it is now. */
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
      await replacePrivateFile(path, text);
    },
    async remove() {
      await removeFile(path);
      // What a process left that was killed while it wrote, and what nobody understood.
      for (const suffix of [".tmp", ".broken"]) await removeFile(`${path}${suffix}`);
    },
    async setAside() {
      await Deno.rename(path, `${path}.broken`);
      return `${path}.broken`;
    },
  };
}

/** What an earlier run recorded. Throws as {@linkcode ServerRecordFile.load} does. */
export async function loadServerRecord(
  file: Pick<ServerRecordFile, "load">,
): Promise<ServerRecord> {
  const text = await file.load();
  return text === undefined ? EMPTY_SERVER_RECORD : parseServerRecord(text);
}

/** Where an earlier run served node ports. Nowhere, where the record cannot be read. */
export async function recordedNodePorts(
  file: Pick<ServerRecordFile, "load">,
): Promise<NodePortServers> {
  try {
    return (await loadServerRecord(file)).nodePorts;
  } catch {
    // Who serves has told it.
    return NO_NODE_PORTS;
  }
}

async function load(path: string): Promise<string | undefined> {
  try {
    // A pipe would keep whoever opens it waiting.
    const { isFile } = await Deno.lstat(path);
    if (!isFile) throw new SyntaxError("it is not a regular file");
    return await readTextUpTo(path, MAX_RECORD_BYTES);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    if (error instanceof RangeError) throw new SyntaxError(error.message, { cause: error });
    throw error;
  }
}
