/**
 * Text of others on a terminal.
 *
 * @module
 */

/** Controls, marks of direction and others that are not seen, and separators of lines. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A manifest may hold any text; none of it may move the cursor, end a line or turn the writing round. */
export function printableText(text: string): string {
  return text.replace(UNPRINTABLE, "\ufffd");
}
