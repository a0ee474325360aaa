/**
 * Makes text from outside (flags, files, objects, tools) safe for a terminal or a log.
 *
 * @module
 */

/** Control, direction and other invisible characters, and line separators. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** The same without line feeds and tabs. */
const UNPRINTABLE_IN_LINES = /[\p{Cf}\p{Zl}\p{Zp}]|(?![\t\n])\p{Cc}/gu;

/** The start or end of a color, or an unprintable character. */
const COLOR_OR_UNPRINTABLE = new RegExp(
  // deno-lint-ignore no-control-regex -- what a terminal takes for a colour
  `${/\x1b\[[\d;]{0,16}m/.source}|${UNPRINTABLE_IN_LINES.source}`,
  "gu",
);

/**
 * Makes a text safe for one line: it cannot move the cursor, end the line or change the writing
 * direction. Such characters are escaped as in JSON (`\u001b`), so that the text of a JSON value
 * stays valid.
 */
export function printableText(text: string): string {
  return text.replace(UNPRINTABLE, escape);
}

/** Like {@linkcode printableText}, for a text with lines and tabs of its own. */
export function printableLines(text: string): string {
  return text.replace(UNPRINTABLE_IN_LINES, escape);
}

/** Like {@linkcode printableLines}, for a text with colors of its own. */
export function printableColors(text: string): string {
  return text.replace(COLOR_OR_UNPRINTABLE, (found) => found.endsWith("m") ? found : escape(found));
}

/** Escapes each half of a character beyond U+FFFF separately, as JSON does. */
function escape(character: string): string {
  return character.split("")
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
}
