/**
 * System calls, by libc. The only module that binds it: types and sizes of arguments, layouts in memory
 * and error numbers are known here alone, and each length is checked before a call.
 *
 * @module
 */
import { constants } from "node:os";

/** Where libc is; the permission (`--allow-ffi`) has to name the very path, links are not followed. */
export const LIBC_PATHS: readonly string[] = [
  "/lib/x86_64-linux-gnu/libc.so.6",
  "/lib/aarch64-linux-gnu/libc.so.6",
  "/lib64/libc.so.6",
];

// Sizes are u32 and lengths i32, although C has 64 bits: a number given as `usize` leaves V8's fast calls
// (408 ns instead of 243). Both ABIs pass arguments in registers, whose upper half each write clears.
const SYMBOLS = {
  socket: { parameters: ["i32", "i32", "i32"], result: "i32" },
  bind: { parameters: ["i32", "buffer", "u32"], result: "i32" },
  listen: { parameters: ["i32", "i32"], result: "i32" },
  getsockname: { parameters: ["i32", "buffer", "buffer"], result: "i32" },
  accept4: { parameters: ["i32", "buffer", "buffer", "i32"], result: "i32" },
  connect: { parameters: ["i32", "buffer", "u32"], result: "i32" },
  epoll_create1: { parameters: ["i32"], result: "i32" },
  epoll_ctl: { parameters: ["i32", "i32", "i32", "buffer"], result: "i32" },
  epoll_wait: { parameters: ["i32", "buffer", "i32", "i32"], result: "i32" },
  recv: { parameters: ["i32", "buffer", "u32", "i32"], result: "i32" },
  send: { parameters: ["i32", "buffer", "u32", "i32"], result: "i32" },
  splice: { parameters: ["i32", "pointer", "i32", "pointer", "u32", "u32"], result: "i32" },
  pipe2: { parameters: ["buffer", "i32"], result: "i32" },
  ioctl: { parameters: ["i32", "u32", "buffer"], result: "i32" },
  fcntl: { parameters: ["i32", "i32", "i32"], result: "i32" },
  shutdown: { parameters: ["i32", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
  setsockopt: { parameters: ["i32", "i32", "i32", "buffer", "u32"], result: "i32" },
  getsockopt: { parameters: ["i32", "i32", "i32", "buffer", "buffer"], result: "i32" },
  recvmmsg: { parameters: ["i32", "buffer", "u32", "i32", "pointer"], result: "i32" },
  sendmmsg: { parameters: ["i32", "buffer", "u32", "i32"], result: "i32" },
  memcpy: { parameters: ["buffer", "pointer", "u32"], result: "usize" },
  __errno_location: { parameters: [], result: "pointer" },
} as const;

/** Bytes that a call reads or fills. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** Numbers of Linux, which x86_64 and aarch64 share. */
export const EPOLL = {
  ...{ IN: 1, OUT: 4, ERR: 8, HUP: 16, RDHUP: 0x2000, EDGE: 0x80000000 | 0 },
} as const;
const [AF_UNIX, AF_INET, AF_INET6] = [1, 2, 10];
const [STREAM, DGRAM, NONBLOCK, CLOEXEC] = [1, 2, 0o4000, 0o2000000];
const SOL_SOCKET = 1;
const OPTIONS = {
  reuseAddress: [SOL_SOCKET, 2],
  keepAlive: [SOL_SOCKET, 9],
  reusePort: [SOL_SOCKET, 15],
  noDelay: [6, 1],
  onlyIpv6: [41, 26],
} as const;
const [SO_ERROR, SO_LINGER, SO_PEERCRED] = [4, 13, 17];
const NOSIGNAL = 0x4000;
const SIOCOUTQ = 0x5411;
const [SHUT_WR, F_SETPIPE_SZ, SPLICE_MOVE_NONBLOCK] = [1, 1031, 3];
const { EINTR, EADDRNOTAVAIL, EAGAIN, EINPROGRESS } = constants.errno;

/** Bytes of the longest `sockaddr`, that of a Unix socket. */
const LONGEST_ADDRESS = 110;
/** Words of `struct epoll_event`, and of its user data: it is packed on x86_64 only. */
const EVENT = Deno.build.arch === "x86_64"
  ? { words: 3, data: 1 } as const
  : { words: 4, data: 2 } as const;

/** AF_UNSPEC. */
const NO_ADDRESS = new Uint8Array(16);

const NAMES = new Map(Object.entries(constants.errno).map(([name, code]) => [code, name]));

/** A system call that has failed. `code` is a name such as `ECONNREFUSED`. */
export class SystemError extends Error {
  readonly code: string;

  constructor(call: string, errno: number) {
    const code = NAMES.get(errno) ?? `errno ${errno}`;
    super(`${call}: ${code}`);
    this.code = code;
  }
}

/** The result of a call that would wait. */
export const WOULD_BLOCK = -EAGAIN;

/**
 * The calls of one thread. Those that move data return a negative error number instead of throwing:
 * an exception costs more than the call.
 */
export class Libc {
  readonly #library: Deno.DynamicLibrary<typeof SYMBOLS>;
  readonly #calls: Deno.DynamicLibrary<typeof SYMBOLS>["symbols"];
  // Deno refuses UnsafePointerView to a process that may load this library alone, so memcpy() reads the
  // word of this thread, and tells the address of a buffer.
  readonly #errnoAt: Deno.PointerValue;
  readonly #errno = new Int32Array(1);
  readonly #word = new Int32Array(2);
  readonly #length = new Uint32Array(1);
  readonly #event = new Int32Array(EVENT.words);
  /** The address that the last call has filled in. */
  readonly address: Bytes = new Uint8Array(LONGEST_ADDRESS);

  /** Throws if the process may not load libc, or there is none. */
  constructor() {
    this.#library = openLibrary(SYMBOLS);
    this.#calls = this.#library.symbols;
    this.#errnoAt = this.#calls.__errno_location();
  }

  /** Nothing may be called afterwards. */
  unload(): void {
    this.#library.close();
  }

  /** Number of the last error; right after the call that has failed, as others set it, too. */
  get #lastError(): number {
    this.#calls.memcpy(this.#errno, this.#errnoAt, 4);
    return this.#errno[0]!;
  }

  #result(result: number): number {
    return result < 0 ? -this.#lastError : result;
  }

  #check(call: string, result: number): number {
    if (result < 0) throw new SystemError(call, this.#lastError);
    return result;
  }

  /** Opens a socket that never waits. */
  socket(family: "unix" | "IPv4" | "IPv6", type: "stream" | "datagram"): number {
    const number = family === "unix" ? AF_UNIX : family === "IPv4" ? AF_INET : AF_INET6;
    const flags = (type === "stream" ? STREAM : DGRAM) | NONBLOCK | CLOEXEC;
    return this.#check("socket", this.#calls.socket(number, flags, 0));
  }

  bind(fd: number, address: Bytes): void {
    this.#check("bind", this.#calls.bind(fd, address, address.length));
  }

  listen(fd: number, backlog: number): void {
    this.#check("listen", this.#calls.listen(fd, backlog));
  }

  /** Fills {@linkcode address} with the own end of a socket. */
  ownAddress(fd: number): Bytes {
    this.#length[0] = LONGEST_ADDRESS;
    this.#check("getsockname", this.#calls.getsockname(fd, this.address, this.#length));
    return this.address;
  }

  /** Accepts a connection, with the client's end in {@linkcode address}. */
  accept(fd: number): number {
    this.#length[0] = LONGEST_ADDRESS;
    const flags = NONBLOCK | CLOEXEC;
    return this.#result(this.#calls.accept4(fd, this.address, this.#length, flags));
  }

  /** Begins to connect; returns whether it is done. */
  connect(fd: number, address: Bytes): boolean {
    if (this.#calls.connect(fd, address, address.length) === 0) return true;
    const errno = this.#lastError;
    if (errno !== EINPROGRESS) throw new SystemError("connect", errno);
    return false;
  }

  /** Lets a UDP socket send to one peer, and receive from it. */
  connectDatagrams(fd: number, address: Bytes): void {
    if (this.#calls.connect(fd, address, address.length) === 0) return;
    const errno = this.#lastError;
    // So it says that no port is left.
    throw new SystemError("connect", errno === EAGAIN ? EADDRNOTAVAIL : errno);
  }

  /** A UDP socket forgets its peer and its own address. */
  disconnect(fd: number): void {
    this.#check("connect", this.#calls.connect(fd, NO_ADDRESS, NO_ADDRESS.length));
  }

  /** The error of an attempt to connect, or of a socket; `undefined` = none. */
  socketError(fd: number): SystemError | undefined {
    this.#length[0] = 4;
    this.#check(
      "getsockopt",
      this.#calls.getsockopt(fd, SOL_SOCKET, SO_ERROR, this.#word, this.#length),
    );
    const errno = this.#word[0]!;
    return errno === 0 ? undefined : new SystemError("connect", errno);
  }

  /** User of the process at the other end of a Unix socket. */
  peerUser(fd: number): number {
    const credentials = new Uint32Array(3);
    this.#length[0] = credentials.byteLength;
    this.#check(
      "getsockopt",
      this.#calls.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials, this.#length),
    );
    return credentials[1]!;
  }

  /** Switches an option on. */
  enable(fd: number, option: keyof typeof OPTIONS): void {
    this.#word[0] = 1;
    const [level, name] = OPTIONS[option];
    this.#check("setsockopt", this.#calls.setsockopt(fd, level, name, this.#word, 4));
  }

  /** The next close of a connection resets it, unless the peer lacks data that was sent. */
  resetOnClose(fd: number): void {
    // It would discard that data.
    if (this.#calls.ioctl(fd, SIOCOUTQ, this.#word) !== 0 || this.#word[0] !== 0) return;
    this.#word[0] = 1;
    this.#word[1] = 0;
    this.#calls.setsockopt(fd, SOL_SOCKET, SO_LINGER, this.#word, 8);
  }

  /** Bytes received, 0 at the end of the stream, or a negative error number. */
  receive(fd: number, buffer: Bytes, length: number): number {
    if (length > buffer.length) throw new RangeError(`${length} bytes of ${buffer.length}`);
    return this.#result(this.#calls.recv(fd, buffer, length, 0));
  }

  /** Bytes taken from the start of `data`, or a negative error number. */
  send(fd: number, data: Uint8Array, length: number): number {
    if (length > data.length) throw new RangeError(`${length} bytes of ${data.length}`);
    return this.#result(this.#calls.send(fd, data as Bytes, length, NOSIGNAL));
  }

  /** Moves bytes between a socket and a pipe; their number, or a negative error number. */
  splice(from: number, to: number, most: number): number {
    return this.#result(this.#calls.splice(from, null, to, null, most, SPLICE_MOVE_NONBLOCK));
  }

  /** Ends for reading and for writing, or `undefined` if there are no files left. */
  pipe(size: number): { readonly from: number; readonly to: number } | undefined {
    if (this.#calls.pipe2(this.#word, NONBLOCK | CLOEXEC) < 0) return undefined;
    const [from, to] = [this.#word[0]!, this.#word[1]!];
    // Refused beyond fs.pipe-user-pages-soft: then it holds 64 KiB, or a page.
    this.#calls.fcntl(to, F_SETPIPE_SZ, size);
    return { from, to };
  }

  endStream(fd: number): void {
    this.#calls.shutdown(fd, SHUT_WR);
  }

  close(fd: number): void {
    // Linux has closed it even if it reports an error.
    this.#calls.close(fd);
  }

  epoll(): number {
    return this.#check("epoll_create1", this.#calls.epoll_create1(CLOEXEC));
  }

  /** Watches a socket; its events carry the fd and a tag. */
  watch(epoll: number, fd: number, mask: number, tag: number): void {
    this.#event[0] = mask;
    this.#event[EVENT.data] = fd;
    this.#event[EVENT.data + 1] = tag;
    this.#check("epoll_ctl", this.#calls.epoll_ctl(epoll, 1, fd, this.#event));
  }

  /** Changes what is watched. */
  rewatch(epoll: number, fd: number, mask: number, tag: number): void {
    this.#event[0] = mask;
    this.#event[EVENT.data] = fd;
    this.#event[EVENT.data + 1] = tag;
    this.#check("epoll_ctl", this.#calls.epoll_ctl(epoll, 3, fd, this.#event));
  }

  /** Waits up to `ms` (-1: without end), and returns the number of events. */
  wait(epoll: number, events: EpollEvents, ms: number): number {
    const count = this.#result(
      this.#calls.epoll_wait(epoll, events.words, events.most, ms),
    );
    if (count < 0 && count !== -EINTR) throw new SystemError("epoll_wait", -count);
    return Math.max(0, count);
  }

  /** Receives up to `count` datagrams. Their number, or a negative error number. */
  receiveMessages(fd: number, headers: Bytes, count: number): number {
    if (count * MESSAGE_BYTES > headers.length) throw new RangeError(`${count} headers`);
    return this.#result(this.#calls.recvmmsg(fd, headers, count, 0, null));
  }

  /** Sends datagrams. The number of those that were sent, or a negative error number if the first failed. */
  sendMessages(fd: number, headers: Bytes, count: number): number {
    if (count * MESSAGE_BYTES > headers.length) throw new RangeError(`${count} headers`);
    return this.#result(this.#calls.sendmmsg(fd, headers, count, NOSIGNAL));
  }

  /** The address of a buffer, which must live as long as the kernel is told of it. */
  addressOf(buffer: Bytes | Uint32Array<ArrayBuffer>): bigint {
    return this.#calls.memcpy(buffer, this.#errnoAt, 0);
  }
}

/** Bytes of `struct mmsghdr`. */
export const MESSAGE_BYTES = 64;

/** Events of one wait. */
export class EpollEvents {
  readonly words: Int32Array<ArrayBuffer>;

  constructor(readonly most: number) {
    this.words = new Int32Array(most * EVENT.words);
  }

  maskAt(index: number): number {
    return this.words[index * EVENT.words]!;
  }

  fdAt(index: number): number {
    return this.words[index * EVENT.words + EVENT.data]!;
  }

  tagAt(index: number): number {
    return this.words[index * EVENT.words + EVENT.data + 1]!;
  }
}

/** Opens libc. Throws if the process may not load it, or there is none. */
export function openLibrary<Symbols extends Deno.ForeignLibraryInterface>(
  symbols: Symbols,
): Deno.DynamicLibrary<Symbols> {
  const failures: unknown[] = [];
  for (const path of LIBC_PATHS) {
    try {
      return Deno.dlopen(path, symbols);
    } catch (error) {
      failures.push(error);
    }
  }
  throw new AggregateError(failures, `Cannot load libc (${LIBC_PATHS.join(", ")})`);
}
