/**
 * Text from outside (flags, files, objects, tools) as a terminal or a log may have it.
 *
 * @module
 */

/** Controls, marks of direction and other characters that are not seen, and separators of lines. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** The same, but for line feeds and tabs. */
const UNPRINTABLE_IN_LINES = /[\p{Cf}\p{Zl}\p{Zp}]|(?![\t\n])\p{Cc}/gu;

/** What a colour begins or ends with, or what is not printable. */
const COLOR_OR_UNPRINTABLE = new RegExp(
  // deno-lint-ignore no-control-regex -- what a terminal takes for a colour
  `${/\x1b\[[\d;]{0,16}m/.source}|${UNPRINTABLE_IN_LINES.source}`,
  "gu",
);

/**
 * A text for one line. Nothing in it moves the cursor, ends the line or turns the writing round: such
 * characters are written as in JSON (`\u001b`), so that the text of a JSON value stays one.
 */
export function printableText(text: string): string {
  return text.replace(UNPRINTABLE, escape);
}

/** As {@linkcode printableText}, for a text that has lines and tabs of its own. */
export function printableLines(text: string): string {
  return text.replace(UNPRINTABLE_IN_LINES, escape);
}

/** As {@linkcode printableLines}, for a text that has colours of its own. */
export function printableColors(text: string): string {
  return text.replace(COLOR_OR_UNPRINTABLE, (found) => found.endsWith("m") ? found : escape(found));
}

/** Each half of a character beyond U+FFFF on its own, as JSON has it. */
function escape(character: string): string {
  return character.split("")
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
}
