/**
 * Short names for content: equal content has the same name, on every node and after every start.
 *
 * @module
 */
import { createHash } from "node:crypto";

/** Characters of a name: 80 bits. */
const LENGTH = 16;
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/**
 * Returns the first 80 bits of the SHA-256 of a text in base 32 (RFC 4648), in small letters. A tenant
 * chooses what is hashed: with a weaker hash, one could craft a policy whose rules take the place of
 * another's.
 */
export function contentId(text: string): string {
  const digest = createHash("sha256").update(text).digest();
  let id = "";
  for (let bit = 0; id.length < LENGTH; bit += 5) {
    const pair = digest.readUInt16BE(bit >> 3);
    id += BASE32[pair >> 11 - (bit & 7) & 31];
  }
  return id;
}

/** A name for a list of texts, as {@linkcode contentId}. */
export function contentIdOfAll(texts: Iterable<string>): string {
  let all = " ";
  for (const text of texts) all += `${text.length} ${text}`;
  return contentId(all);
}
