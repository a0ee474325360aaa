/**
 * Removes secrets from text for the log. This is the last line of defense: code should not log
 * secrets, but error texts of libraries and URLs may contain them.
 *
 * @module
 */

/** The replacement of a secret. */
export const REDACTED = "[redacted]";

const SECRET_NAME = /(?:token|password|passwd|secret|authorization|cookie|credentials?|keydata)$/i;

const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g, REDACTED],
  [/\b(Bearer)\s+[\w.~+/=-]+/gi, `$1 ${REDACTED}`],
  [/\b(Basic)\s+[\w+/]{8,}=*/gi, `$1 ${REDACTED}`],
  // JSON Web Tokens, such as those of service accounts, begin with {" in base64.
  [/\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?/g, REDACTED],
  // User information of URLs.
  [/(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/?#@]+@/gi, `$1${REDACTED}@`],
];

/** Whether a field of this name holds a secret; `tokenFile` does not, `token` does. */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** Returns the text without anything that looks like a secret. */
export function redactText(text: string): string {
  return SECRETS.reduce((result, [pattern, replacement]) => {
    return result.replace(pattern, replacement);
  }, text);
}
