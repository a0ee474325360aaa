/**
 * Calls the C library: for the time that ended children used, to the microsecond, and for
 * connections and datagrams without an event loop, which would take longer than they do.
 *
 * @module
 */

/** The resources that all ended children of this process have used. */
export interface ChildUsage {
  readonly cpuMs: number;
  /** Most resident memory of any one of them. */
  readonly peakMiB: number;
}

const AF_INET = 2;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const DATAGRAM_BYTES = 64;
const RUSAGE_CHILDREN = -1;
/** `struct rusage` on 64 bits: two times of 16 bytes, then 14 numbers of 8. */
const RUSAGE_BYTES = 144;
const MAX_RSS_AT = 32;

const libc = Deno.dlopen("libc.so.6", {
  close: { parameters: ["i32"], result: "i32" },
  connect: { parameters: ["i32", "buffer", "u32"], result: "i32" },
  getrusage: { parameters: ["i32", "buffer"], result: "i32" },
  send: { parameters: ["i32", "buffer", "usize", "i32"], result: "isize" },
  socket: { parameters: ["i32", "i32", "i32"], result: "i32" },
});

/** Returns the usage until now. */
export function childUsage(): ChildUsage {
  const bytes = new Uint8Array(RUSAGE_BYTES);
  libc.symbols.getrusage(RUSAGE_CHILDREN, bytes);
  const view = new DataView(bytes.buffer);
  const number = (at: number) => Number(view.getBigInt64(at, true));
  const timeMs = (at: number) => number(at) * 1000 + number(at + 8) / 1000;
  return { cpuMs: timeMs(0) + timeMs(16), peakMiB: number(MAX_RSS_AT) / 1024 };
}

/** Microseconds until the kernel has made a TCP connection to an IPv4 address. Throws when it does not. */
export function connectMicroseconds(address: string, port: number): number {
  const name = socketName(address, port);
  const socket = libc.symbols.socket(AF_INET, SOCK_STREAM, 0);
  const started = performance.now();
  const failed = libc.symbols.connect(socket, name, name.length);
  const took = (performance.now() - started) * 1000;
  libc.symbols.close(socket);
  if (failed !== 0) throw new Error(`Cannot connect to ${address}:${port}: the kernel refused it`);
  return took;
}

/**
 * Microseconds until the kernel has taken a datagram to an IPv4 address of this machine to its end,
 * all of one socket. The first one is not counted. Throws when it does not.
 */
export function sendMicroseconds(
  { address, datagrams }: { readonly address: string; readonly datagrams: number },
  port: number,
): number {
  const name = socketName(address, port);
  const bytes = new Uint8Array(DATAGRAM_BYTES);
  const socket = libc.symbols.socket(AF_INET, SOCK_DGRAM, 0);
  try {
    const send = () => libc.symbols.send(socket, bytes, BigInt(bytes.length), 0) > 0;
    const isOpen = libc.symbols.connect(socket, name, name.length) === 0 && send();
    let left = isOpen ? datagrams : Infinity;
    const started = performance.now();
    while (left > 0 && isOpen && send()) left--;
    if (left > 0) throw new Error(`Cannot send to ${address}:${port}: the kernel refused it`);
    return (performance.now() - started) * 1000 / datagrams;
  } finally {
    libc.symbols.close(socket);
  }
}

function socketName(address: string, port: number): Uint8Array<ArrayBuffer> {
  const name = new Uint8Array(16);
  const view = new DataView(name.buffer);
  view.setUint16(0, AF_INET, true);
  view.setUint16(2, port);
  name.set(address.split(".").map(Number), 4);
  return name;
}
