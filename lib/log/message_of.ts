/**
 * Returns the message of an error, or the text of any other thrown value. Deno never opens most files of
 * /dev, /proc and /sys without all permissions; its own message advises to give them.
 */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name !== "NotCapable") return error.message;
  const [, path] = /^Requires all access to "(.*)", run again/.exec(error.message) ?? [];
  return path === undefined
    ? error.message
    : `kube-relay does not open '${path}': choose a file outside /dev, /proc and /sys`;
}

/**
 * Returns where `JSON.parse()` failed, as ` at line 1, column 33`; empty if unknown. The parser's
 * own message quotes the text, which may be a secret.
 */
export function jsonErrorPlace(error: unknown): string {
  const [, line, column] = / \(line (\d+) column (\d+)\)$/.exec(messageOf(error)) ?? [];
  return line === undefined ? "" : ` at line ${line}, column ${column}`;
}
