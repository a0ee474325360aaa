/**
 * The message of whatever was thrown.
 *
 * @module
 */

/** What an error says; the text of anything else. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
