/**
 * The message of whatever was thrown.
 *
 * @module
 */

/** What an error says; the text of anything else. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Where `JSON.parse()` failed, as ` at line 1, column 33`; empty where it does not say so. Its own
 * message quotes the text, which may be a secret.
 */
export function jsonErrorPlace(error: unknown): string {
  const [, line, column] = / \(line (\d+) column (\d+)\)$/.exec(messageOf(error)) ?? [];
  return line === undefined ? "" : ` at line ${line}, column ${column}`;
}
