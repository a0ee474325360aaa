import { readTextUpTo } from "../os/read_text_up_to.ts";
import { MAX_YAML_LENGTH } from "./yaml_source.ts";

/** A character in UTF-8 has at most four bytes; the parser would refuse longer text. */
const MAX_BYTES = 4 * MAX_YAML_LENGTH;

/** Reads a configuration file, which may be a pipe. Rejects if it is too long. */
export function readConfigurationText(path: string): Promise<string> {
  return readTextUpTo(path, MAX_BYTES);
}

/**
 * Reads a configuration file again. Rejects for a pipe, whose text is already consumed, and for a
 * file that is too long.
 */
export function rereadConfigurationText(path: string): Promise<string> {
  return readTextUpTo(path, MAX_BYTES, { onlyFiles: true });
}
