/**
 * The server name of a TLS ClientHello (RFC 8446, sections 4.1.2 and 5.1; RFC 6066, section 3), which may
 * come in pieces and be fragmented over several records. Pure.
 *
 * @module
 */
import { type ServerName, tryParseServerName } from "../../../lib/net/server_name.ts";

/** The result for the bytes received so far. */
export type ClientHelloParse =
  /** `atLeast`: bytes of the connection before which it cannot be complete. */
  | { readonly kind: "incomplete"; readonly atLeast: number }
  | { readonly kind: "invalid"; readonly reason: string }
  /** No name: none was sent, or it is not a host name, or this is not TLS. */
  | { readonly kind: "complete"; readonly name: ServerName | undefined };

/** Most bytes until the end of a ClientHello, with the headers of its records. */
export const MOST_HELLO_BYTES = 16_384;

const [HANDSHAKE, MAJOR_VERSION, CLIENT_HELLO, SERVER_NAME, HOST_NAME] = [22, 3, 1, 0, 0];
const RECORD_HEADER_BYTES = 5;
const MOST_RECORD_BYTES = 16_384;
const MESSAGE_HEADER_BYTES = 4;
const VERSION_AND_RANDOM_BYTES = 34;
const LONGEST_NAME_BYTES = 255;
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
  const message = new Uint8Array(bytes.length);
  let [at, length, wanted] = [0, 0, MESSAGE_HEADER_BYTES];
  const incomplete = (more: number) => ({ kind: "incomplete" as const, atLeast: at + more });
  while (length < wanted) {
    if (bytes.length < at + RECORD_HEADER_BYTES) {
      return incomplete(RECORD_HEADER_BYTES + wanted - length);
    }
    const size = bytes[at + 3]! * 256 + bytes[at + 4]!;
    if (
      bytes[at] !== HANDSHAKE || bytes[at + 1] !== MAJOR_VERSION || size === 0 ||
      size > MOST_RECORD_BYTES
    ) return invalid("its records are not those of a handshake");
    at += RECORD_HEADER_BYTES;
    const fragment = bytes.subarray(at, at + size);
    message.set(fragment, length);
    at += fragment.length;
    length += fragment.length;
    if (wanted === MESSAGE_HEADER_BYTES && length >= wanted) {
      const header = new Reader(message);
      if (header.number(1) !== CLIENT_HELLO) return invalid("it is another message");
      wanted += header.number(3);
      if (wanted > MOST_HELLO_BYTES) return invalid("it is longer than 16 KiB");
    }
    if (fragment.length < size && length < wanted) return incomplete(wanted - length);
  }
  return message.subarray(MESSAGE_HEADER_BYTES, wanted);
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
    if (size > this.left) this.isBroken = true;
    let number = 0;
    for (const end = this.#at + size; this.#at < end; this.#at++) {
      number = number * 256 + (this.#bytes[this.#at] ?? 0);
    }
    return number;
  }

  /** Bytes that follow their count, of so many bytes. */
  vector(sizeBytes: number): Uint8Array {
    return this.take(this.number(sizeBytes));
  }
}
