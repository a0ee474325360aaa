/**
 * The text of a configuration file.
 *
 * @module
 */
import { readTextUpTo } from "../os/read_text_up_to.ts";
import { MAX_YAML_LENGTH } from "./yaml_source.ts";

/** Four bytes are the longest character in UTF-8; what is longer, the parser would refuse. */
const MAX_BYTES = 4 * MAX_YAML_LENGTH;

/** Reads a configuration file, which may be a pipe. Rejects where it is too long to be one. */
export function readConfigurationText(path: string): Promise<string> {
  return readTextUpTo(path, MAX_BYTES);
}

/** Reads a configuration file once more. Rejects for a pipe, whose text is gone, and too long a file. */
export function rereadConfigurationText(path: string): Promise<string> {
  return readTextUpTo(path, MAX_BYTES, { onlyFiles: true });
}
