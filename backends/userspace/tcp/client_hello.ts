/**
 * The server name of a TLS ClientHello (RFC 8446, sections 4.1.2 and 5.1; RFC 6066, section 3), which may
 * come in pieces and be fragmented over several records. Pure.
 *
 * @module
 */
import { type ServerName, tryParseServerName } from "../../../lib/net/server_name.ts";

/** The result for the bytes received so far. */
export type ClientHelloParse =
  | { readonly kind: "incomplete" }
  | { readonly kind: "invalid"; readonly reason: string }
  /** No name: none was sent, or it is not a host name, or this is not TLS. */
  | { readonly kind: "complete"; readonly name: ServerName | undefined };

/** Most bytes until the end of a ClientHello, with the headers of its records. */
export const MOST_HELLO_BYTES = 16_384;

const [HANDSHAKE, MAJOR_VERSION, CLIENT_HELLO, SERVER_NAME, HOST_NAME] = [22, 3, 1, 0, 0];
const RECORD_HEADER_BYTES = 5;
const MESSAGE_HEADER_BYTES = 4;
const VERSION_AND_RANDOM_BYTES = 34;
const LONGEST_NAME_BYTES = 255;
const INCOMPLETE: ClientHelloParse = { kind: "incomplete" };
const NO_NAME: ClientHelloParse = { kind: "complete", name: undefined };
const BROKEN = invalid("its lengths contradict each other");

/**
 * Reads the start of a connection. Extensions that are unknown, GREASE among them, are skipped; of
 * encrypted ClientHellos, the outer name counts.
 */
export function parseClientHello(bytes: Uint8Array): ClientHelloParse {
  if (bytes.length > 0 && bytes[0] !== HANDSHAKE) return NO_NAME;
  if (bytes.length > 1 && bytes[1] !== MAJOR_VERSION) return NO_NAME;
  const message = readMessage(bytes);
  return message instanceof Uint8Array ? parseHello(message) : message;
}

/** Joins the fragments of the first handshake message. */
function readMessage(bytes: Uint8Array): Uint8Array | ClientHelloParse {
  const fragments: Uint8Array[] = [];
  let [length, wanted] = [0, MESSAGE_HEADER_BYTES];
  const records = new Reader(bytes);
  while (length < wanted) {
    if (records.left < RECORD_HEADER_BYTES) return INCOMPLETE;
    const [type, major] = [records.number(1), records.number(1)];
    records.take(1);
    const size = records.number(2);
    if (type !== HANDSHAKE || major !== MAJOR_VERSION || size === 0 || size > 16_384) {
      return invalid("its records are not those of a handshake");
    }
    const fragment = records.take(Math.min(size, records.left));
    fragments.push(fragment);
    length += fragment.length;
    if (wanted === MESSAGE_HEADER_BYTES && length >= wanted) {
      const header = new Reader(join(fragments, wanted));
      if (header.number(1) !== CLIENT_HELLO) return invalid("it is another message");
      wanted += header.number(3);
      if (wanted > MOST_HELLO_BYTES) return invalid("it is longer than 16 KiB");
    }
    if (fragment.length < size && length < wanted) return INCOMPLETE;
  }
  return join(fragments, wanted).subarray(MESSAGE_HEADER_BYTES);
}

function parseHello(message: Uint8Array): ClientHelloParse {
  const hello = new Reader(message);
  hello.take(VERSION_AND_RANDOM_BYTES);
  hello.vector(1);
  hello.vector(2);
  hello.vector(1);
  if (hello.left === 0) return hello.isBroken ? BROKEN : NO_NAME;
  const extensions = new Reader(hello.vector(2));
  let found: Uint8Array | undefined;
  while (extensions.left > 0) {
    const type = extensions.number(2);
    const content = extensions.vector(2);
    if (type !== SERVER_NAME) continue;
    if (found) return invalid("it has two extensions for names");
    found = content;
  }
  if (hello.isBroken || hello.left > 0 || extensions.isBroken) return BROKEN;
  return found ? parseNames(found) : NO_NAME;
}

function parseNames(extension: Uint8Array): ClientHelloParse {
  const outer = new Reader(extension);
  const names = new Reader(outer.vector(2));
  let found: Uint8Array | undefined;
  while (names.left > 0) {
    const type = names.number(1);
    const content = names.vector(2);
    if (type !== HOST_NAME) continue;
    if (found) return invalid("it has two names");
    found = content;
  }
  if (outer.isBroken || outer.left > 0 || names.isBroken) return BROKEN;
  if (found === undefined || found.length > LONGEST_NAME_BYTES) return NO_NAME;
  return { kind: "complete", name: tryParseServerName(String.fromCharCode(...found)) };
}

function join(fragments: readonly Uint8Array[], length: number): Uint8Array {
  const [first, ...rest] = fragments;
  if (first && rest.length === 0) return first.subarray(0, length);
  return new Uint8Array(fragments.flatMap((each) => [...each])).subarray(0, length);
}

function invalid(reason: string): ClientHelloParse {
  return { kind: "invalid", reason };
}

/** Reads numbers and vectors; beyond the end it is broken, and what it returns is of no use. */
class Reader {
  isBroken = false;
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  take(count: number): Uint8Array {
    if (count > this.left) this.isBroken = true;
    const taken = this.#bytes.subarray(this.#at, this.#at + count);
    this.#at += taken.length;
    return taken;
  }

  number(size: number): number {
    return this.take(size).reduce((number, byte) => number * 256 + byte, 0);
  }

  /** Bytes that follow their count, of so many bytes. */
  vector(sizeBytes: number): Uint8Array {
    return this.take(this.number(sizeBytes));
  }
}
