/** Returns the message of an error, or the text of any other thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Returns where `JSON.parse()` failed, as ` at line 1, column 33`; empty if unknown. The parser's
 * own message quotes the text, which may be a secret.
 */
export function jsonErrorPlace(error: unknown): string {
  const [, line, column] = / \(line (\d+) column (\d+)\)$/.exec(messageOf(error)) ?? [];
  return line === undefined ? "" : ` at line ${line}, column ${column}`;
}
