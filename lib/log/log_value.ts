import { printableText } from "./printable_text.ts";
import { isSecretName, REDACTED, redactText } from "./redact.ts";

/** Longest text of one value; objects from a cluster may be megabytes. */
const MAX_LENGTH = 2000;

/** Text that is unambiguous without quotes. */
const BARE = /^[\w.,:;/@%+*#()[\]<>-]+$/;

/**
 * Returns the value without secrets, in a form that JSON can express. Errors become their texts.
 */
export function toPlainValue(name: string, value: unknown): unknown {
  if (isSecretName(name)) return REDACTED;
  if (typeof value === "string") return shorten(redactText(value));
  if (typeof value === "bigint" || typeof value === "symbol") return String(value);
  if (value instanceof Error) return shorten(redactText(errorText(value)));
  if (typeof value !== "object" || value === null) return value;
  const text = toJson(value);
  return text.length > MAX_LENGTH ? shorten(text) : JSON.parse(text);
}

/** Returns the value for people: without quotes if it is one word. */
export function toValueText(name: string, value: unknown): string {
  const plain = toPlainValue(name, value);
  if (typeof plain !== "string") return plain === undefined ? "undefined" : toJson(plain);
  return BARE.test(plain) ? plain : printableText(JSON.stringify(plain));
}

/** Returns the message and causes of an error in one line. */
function errorText(error: Error): string {
  const texts: string[] = [];
  for (let each: unknown = error; each !== undefined && texts.length < 5;) {
    const text = each instanceof Error ? each.message || each.name : String(each);
    if (!texts.some((known) => known.includes(text))) texts.push(text);
    each = each instanceof Error ? each.cause : undefined;
  }
  return texts.join(": ");
}

function toJson(value: unknown): string {
  const replace = (name: string, inner: unknown) => {
    if (isSecretName(name)) return REDACTED;
    if (typeof inner === "string") return redactText(inner);
    if (typeof inner === "bigint") return String(inner);
    if (inner instanceof Error) return redactText(errorText(inner));
    return inner instanceof Map || inner instanceof Set ? [...inner] : inner;
  };
  try {
    return printableText(JSON.stringify(value, replace) ?? String(value));
  } catch {
    // A cycle.
    return JSON.stringify(String(value));
  }
}

function shorten(text: string): string {
  return text.length <= MAX_LENGTH
    ? text
    : `${text.slice(0, MAX_LENGTH)}… (${text.length} characters)`;
}
