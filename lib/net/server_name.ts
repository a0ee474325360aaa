/**
 * Host names that TLS clients ask for (RFC 6066, section 3), and which of several claims one belongs to.
 *
 * @module
 */

/** A host name: ASCII, in lower case, without a dot at its end. IDNA names are in their `xn--` form. */
export type ServerName = string & { readonly __brand: "ServerName" };

/** A name; `*.` and a name, for one label before it; or {@linkcode ANY_NAME}. */
export type ServerNameClaim = ServerName | `*.${string}` | "*";

/** The claim to every connection whose name nobody else claims, and to those without a name. */
export const ANY_NAME = "*";

const LONGEST_NAME = 253;
// Underscores are in names of real hosts. A last label of digits is part of an IPv4 address.
const NAME =
  /^(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*(?!\d+$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** Reads a name in either case; `undefined` = it is none, such as an IP address. */
export function tryParseServerName(text: string): ServerName | undefined {
  const plain = text.endsWith(".") ? text.slice(0, -1) : text;
  if (plain.length > LONGEST_NAME) return undefined;
  // Not toLowerCase(), which turns the sign for kelvin into a k.
  const name = plain.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
  return NAME.test(name) ? name as ServerName : undefined;
}

/** Reads a claim; `undefined` = it is none. */
export function tryParseServerNameClaim(text: string): ServerNameClaim | undefined {
  if (text === ANY_NAME) return text;
  const name = tryParseServerName(text.replace(/^\*\./, ""));
  return name === undefined || !text.startsWith("*.") ? name : `*.${name}`;
}

/** Finds what has a name: by the name itself, else by its wildcard, else by {@linkcode ANY_NAME}. */
export function findByServerName<Owner>(
  claims: ReadonlyMap<string, Owner>,
  name: ServerName | undefined,
): Owner | undefined {
  const dot = name?.indexOf(".") ?? -1;
  return (name !== undefined ? claims.get(name) : undefined) ??
    (dot > 0 ? claims.get(`*${name!.slice(dot)}`) : undefined) ?? claims.get(ANY_NAME);
}
