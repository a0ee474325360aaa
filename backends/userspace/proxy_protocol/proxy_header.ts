/**
 * Headers of the PROXY protocol, versions 1 (text) and 2 (binary). Pure.
 *
 * @module
 */
import {
  addressAt,
  addressNumber,
  type IpAddress,
  ipFamilyOf,
  tryParseIpAddress,
} from "../../../lib/net/ip_address.ts";

/** One end of a connection. */
interface CarriedAddress {
  readonly address: IpAddress;
  /** Unlike in the rest of the program, 0 is possible: the peer chose it. */
  readonly port: number;
}

/** The ends of a connection, as the client and the first proxy see them. */
export interface CarriedConnection {
  readonly source: CarriedAddress;
  readonly destination: CarriedAddress;
}

/** The result for the bytes received so far. */
export type HeaderParse =
  | { readonly kind: "incomplete" }
  | { readonly kind: "invalid"; readonly reason: string }
  | {
    readonly kind: "complete";
    /** Bytes of the header; data of the connection follows. */
    readonly length: number;
    /** Absent if the peer speaks for itself, for instance to check health. */
    readonly carried?: CarriedConnection;
  };

/** The transport of what follows a header of version 2. */
type Transport = "TCP" | "UDP";

/** Most bytes of a header: its end would otherwise be at the choice of the peer. */
export const MOST_HEADER_BYTES = 4096;

const SIGNATURE = [13, 10, 13, 10, 0, 13, 10, 81, 85, 73, 84, 10];
const V1_START = [..."PROXY "].map((letter) => letter.charCodeAt(0));
/** Including the two bytes that end the line. */
const MOST_V1_BYTES = 107;
const V2_FIXED_BYTES = 16;
const VERSION_2 = 0x20;
const [LOCAL, PROXY] = [0, 1];
const TRANSPORT_BITS: Readonly<Record<Transport, number>> = { TCP: 1, UDP: 2 };
/** Bytes of an address by the number of its family; those of Unix sockets are of no use here. */
const FAMILIES: ReadonlyMap<number, number> = new Map([[0, 0], [1, 4], [2, 16], [3, 108]]);
const INCOMPLETE: HeaderParse = { kind: "incomplete" };

/** Reads the header at the start of a TCP connection, of either version. */
export function parseProxyHeader(bytes: Uint8Array): HeaderParse {
  if (bytes.length === 0) return INCOMPLETE;
  const start = bytes[0] === V1_START[0] ? V1_START : SIGNATURE;
  for (let index = 0; index < Math.min(start.length, bytes.length); index++) {
    if (bytes[index] !== start[index]) return invalid("it does not begin with a PROXY header");
  }
  return start === V1_START ? parseV1(bytes) : parseV2(bytes, "TCP");
}

/** Reads the header at the start of a UDP datagram, which has to be whole and of version 2. */
export function parseProxyDatagram(
  bytes: Uint8Array,
): Exclude<HeaderParse, { readonly kind: "incomplete" }> {
  if (!SIGNATURE.every((byte, index) => bytes[index] === byte)) {
    return invalid("it does not begin with a PROXY header of version 2");
  }
  const parsed = parseV2(bytes, "UDP");
  return parsed.kind === "incomplete" ? invalid("the datagram ends within it") : parsed;
}

function parseV1(bytes: Uint8Array): HeaderParse {
  const end = bytes.subarray(0, MOST_V1_BYTES).indexOf(10);
  if (end === -1) {
    return bytes.length < MOST_V1_BYTES ? INCOMPLETE : invalid("its line is longer than 107 bytes");
  }
  if (bytes[end - 1] !== 13) return invalid("its line does not end with CR and LF");
  const text = String.fromCharCode(...bytes.subarray(V1_START.length, end - 1));
  const [family, ...rest] = text.split(" ");
  if (family === "UNKNOWN") return { kind: "complete", length: end + 1 };
  if (family !== "TCP4" && family !== "TCP6") return invalid("it is for neither TCP4 nor TCP6");
  const [from = "", to = "", fromPort = "", toPort = "", ...more] = rest;
  const isFamily = [from, to].every((each) => each.includes(":") === (family === "TCP6"));
  const [source, destination] = [addressOf(from, fromPort), addressOf(to, toPort)];
  if (!isFamily || !source || !destination || more.length > 0) {
    return invalid(`it needs two ${family} addresses and two ports`);
  }
  return { kind: "complete", length: end + 1, carried: { source, destination } };
}

function addressOf(text: string, portText: string): CarriedAddress | undefined {
  const address = tryParseIpAddress(text);
  const port = /^(?:0|[1-9]\d{0,4})$/.test(portText) ? Number(portText) : NaN;
  return address !== undefined && port <= 65_535 ? { address, port } : undefined;
}

function parseV2(bytes: Uint8Array, expected: Transport): HeaderParse {
  if (bytes.length < V2_FIXED_BYTES) return INCOMPLETE;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const [command, kind] = [view.getUint8(12), view.getUint8(13)];
  const length = V2_FIXED_BYTES + view.getUint16(14);
  const [addressBytes, transport] = [FAMILIES.get(kind >> 4), kind & 0xf];
  if (command !== (VERSION_2 | LOCAL) && command !== (VERSION_2 | PROXY)) {
    return invalid("its version or command is unknown");
  }
  if (length > MOST_HEADER_BYTES) return invalid(`it is longer than ${MOST_HEADER_BYTES} bytes`);
  // The peer speaks for itself, whatever it fills in.
  if (command === (VERSION_2 | LOCAL)) {
    return bytes.length < length ? INCOMPLETE : { kind: "complete", length };
  }
  if (addressBytes === undefined || (addressBytes > 0 && transport !== TRANSPORT_BITS[expected])) {
    return invalid(`it is not for ${expected === "TCP" ? "a TCP connection" : "a UDP datagram"}`);
  }
  const portBytes = addressBytes === 4 || addressBytes === 16 ? 4 : 0;
  if (length < V2_FIXED_BYTES + 2 * addressBytes + portBytes) {
    return invalid("it is too short for its addresses");
  }
  if (bytes.length < length) return INCOMPLETE;
  if (portBytes === 0) return { kind: "complete", length };
  const [source, destination] = [0, 1].map((index) => ({
    address: readAddress(bytes.subarray(V2_FIXED_BYTES + index * addressBytes), addressBytes),
    port: view.getUint16(V2_FIXED_BYTES + 2 * addressBytes + 2 * index),
  }));
  return { kind: "complete", length, carried: { source: source!, destination: destination! } };
}

function readAddress(bytes: Uint8Array, length: number): IpAddress {
  const text = length === 4
    ? bytes.subarray(0, 4).join(".")
    : addressAt(BigInt(`0x${bytes.subarray(0, 16).toHex()}`), "IPv6");
  // IPv4 addresses inside IPv6 become IPv4, so that source ranges and policies apply to them.
  return tryParseIpAddress(text) ?? text as IpAddress;
}

/** Headers of connections that this process makes for itself, by version. */
export const LOCAL_HEADERS: Readonly<Record<"v1" | "v2", Uint8Array>> = {
  v1: new TextEncoder().encode("PROXY UNKNOWN\r\n"),
  v2: new Uint8Array([...SIGNATURE, VERSION_2 | LOCAL, 0, 0, 0]),
};

/** A header of version 1. */
export function proxyHeaderV1({ source, destination }: CarriedConnection): Uint8Array {
  const isV4 = [source, destination].every(({ address }) => ipFamilyOf(address) === "IPv4");
  const texts = [source, destination].map(({ address }) =>
    isV4 || ipFamilyOf(address) === "IPv6" ? address : `::ffff:${address}`
  );
  const line = ["PROXY", isV4 ? "TCP4" : "TCP6", ...texts, source.port, destination.port].join(" ");
  return new TextEncoder().encode(`${line}\r\n`);
}

/** A header of version 2. */
export function proxyHeaderV2(
  { source, destination }: CarriedConnection,
  transport: Transport,
): Uint8Array {
  const isV4 = [source, destination].every(({ address }) => ipFamilyOf(address) === "IPv4");
  const addressBytes = isV4 ? 4 : 16;
  const header = new Uint8Array(V2_FIXED_BYTES + 2 * addressBytes + 4);
  const view = new DataView(header.buffer);
  header.set(SIGNATURE);
  header[12] = VERSION_2 | PROXY;
  header[13] = (isV4 ? 0x10 : 0x20) | TRANSPORT_BITS[transport];
  view.setUint16(14, header.length - V2_FIXED_BYTES);
  for (const [index, { address, port }] of [source, destination].entries()) {
    writeAddress(header.subarray(V2_FIXED_BYTES + index * addressBytes), address, addressBytes);
    view.setUint16(V2_FIXED_BYTES + 2 * addressBytes + 2 * index, port);
  }
  return header;
}

function writeAddress(to: Uint8Array, address: IpAddress, length: number): void {
  let number = addressNumber(address);
  if (length === 16 && ipFamilyOf(address) === "IPv4") number |= 0xffffn << 32n;
  for (let index = length - 1; index >= 0; index--, number >>= 8n) {
    to[index] = Number(number & 255n);
  }
}

function invalid(reason: string): { readonly kind: "invalid"; readonly reason: string } {
  return { kind: "invalid", reason };
}
