/**
 * Reads the kernel's notifications of changes of nftables, by a netlink socket.
 *
 * @module
 */

/** An element that was added to a set or map. */
export interface NewElement {
  /** Name of the set or map. */
  readonly container: string;
  readonly key: Uint8Array;
}

const AF_NETLINK = 16;
const SOCK_RAW = 3;
const NETLINK_NETFILTER = 12;
/** The group of changes of nftables, as a bit. */
const NFTABLES_GROUP = 1 << 6;
const SOL_SOCKET = 1;
const SO_RCVBUFFORCE = 33;
/** Messages are lost beyond it, which recv() says. */
const RECEIVE_BUFFER_BYTES = 64 * 2 ** 20;
const MESSAGE_BYTES = 256 * 1024;
/** NFT_MSG_NEWSETELEM of the subsystem of nftables. */
const NEW_ELEMENT = (10 << 8) | 12;
const MESSAGE_HEADER_BYTES = 16;
/** The header of a netfilter message, which follows the general one. */
const FAMILY_HEADER_BYTES = 4;
const ATTRIBUTE_HEADER_BYTES = 4;
/** Flags that are no part of an attribute's type. */
const TYPE_MASK = 0x3fff;
/** Numbers of attributes, from linux/netfilter/nf_tables.h. */
const LIST = { container: 2, elements: 3 } as const;
const LIST_ITEM = 1;
const ELEMENT_KEY = 1;
const DATA_VALUE = 1;

/** A socket that hears of every change in this network namespace. Needs root. */
export class NetlinkSocket {
  readonly #libc = Deno.dlopen("libc.so.6", {
    bind: { parameters: ["i32", "buffer", "u32"], result: "i32" },
    recv: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize", nonblocking: true },
    setsockopt: { parameters: ["i32", "i32", "i32", "buffer", "u32"], result: "i32" },
    socket: { parameters: ["i32", "i32", "i32"], result: "i32" },
  });
  readonly #socket: number;
  readonly #buffer = new Uint8Array(MESSAGE_BYTES);

  constructor() {
    const { socket, setsockopt, bind } = this.#libc.symbols;
    this.#socket = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
    const size = new Uint8Array(new Int32Array([RECEIVE_BUFFER_BYTES]).buffer);
    const address = new DataView(new ArrayBuffer(12));
    address.setUint16(0, AF_NETLINK, true);
    address.setUint32(8, NFTABLES_GROUP, true);
    const isReady = this.#socket >= 0 &&
      setsockopt(this.#socket, SOL_SOCKET, SO_RCVBUFFORCE, size, size.length) === 0 &&
      bind(this.#socket, new Uint8Array(address.buffer), address.byteLength) === 0;
    if (!isReady) throw new Error("Cannot listen to changes of nftables: the kernel refused it");
  }

  /** The next messages. Valid until the next call. Throws when some were lost. */
  async receive(): Promise<Uint8Array> {
    const { recv } = this.#libc.symbols;
    const length = Number(await recv(this.#socket, this.#buffer, BigInt(MESSAGE_BYTES), 0));
    if (length < 0) throw new Error("Cannot tell what changed: the kernel dropped messages");
    return this.#buffer.subarray(0, length);
  }
}

/** The elements that messages say have come. */
export function* newElements(messages: Uint8Array): Generator<NewElement> {
  const view = new DataView(messages.buffer, messages.byteOffset, messages.length);
  for (let at = 0; at + MESSAGE_HEADER_BYTES <= messages.length;) {
    const length = view.getUint32(at, true);
    if (length < MESSAGE_HEADER_BYTES) return;
    if (view.getUint16(at + 4, true) === NEW_ELEMENT) {
      const from = at + MESSAGE_HEADER_BYTES + FAMILY_HEADER_BYTES;
      yield* elementsOf(messages.subarray(from, at + length));
    }
    at += aligned(length);
  }
}

function* elementsOf(bytes: Uint8Array): Generator<NewElement> {
  const fields = attributes(bytes);
  const name = fields.find(({ type }) => type === LIST.container)?.value;
  const list = fields.find(({ type }) => type === LIST.elements)?.value;
  if (name === undefined || list === undefined) return;
  const container = new TextDecoder().decode(name.subarray(0, -1));
  for (const { type, value } of attributes(list)) {
    if (type !== LIST_ITEM) continue;
    const data = attributes(value).find((field) => field.type === ELEMENT_KEY)?.value;
    const key = data && attributes(data).find((field) => field.type === DATA_VALUE)?.value;
    if (key !== undefined) yield { container, key };
  }
}

function attributes(bytes: Uint8Array): { type: number; value: Uint8Array }[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const found = [];
  for (let at = 0; at + ATTRIBUTE_HEADER_BYTES <= bytes.length;) {
    const length = view.getUint16(at, true);
    if (length < ATTRIBUTE_HEADER_BYTES) break;
    const type = view.getUint16(at + 2, true) & TYPE_MASK;
    found.push({ type, value: bytes.subarray(at + ATTRIBUTE_HEADER_BYTES, at + length) });
    at += aligned(length);
  }
  return found;
}

function aligned(length: number): number {
  return (length + 3) & ~3;
}
