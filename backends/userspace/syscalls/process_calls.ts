/**
 * What a data process asks of the kernel at its start: shared memory, and less rights. Next to
 * `libc.ts`, since that needs no view of memory that Deno does not own.
 *
 * @module
 */
import { openLibrary } from "./libc.ts";

const SYMBOLS = {
  open: { parameters: ["buffer", "i32", "i32"], result: "i32" },
  close: { parameters: ["i32"], result: "i32" },
  mmap: { parameters: ["usize", "usize", "i32", "i32", "i32", "i64"], result: "usize" },
  setsid: { parameters: [], result: "i32" },
  getuid: { parameters: [], result: "u32" },
  setgroups: { parameters: ["usize", "usize"], result: "i32" },
  setresgid: { parameters: ["u32", "u32", "u32"], result: "i32" },
  setresuid: { parameters: ["u32", "u32", "u32"], result: "i32" },
  prctl: { parameters: ["i32", "u64", "u64", "u64", "u64"], result: "i32" },
  capget: { parameters: ["buffer", "buffer"], result: "i32" },
  capset: { parameters: ["buffer", "buffer"], result: "i32" },
} as const;

const [O_RDWR, O_NOFOLLOW, O_CLOEXEC] = [
  2,
  Deno.build.arch === "x86_64" ? 0o400000 : 0o100000,
  0o2000000,
];
const [PROT_READ_WRITE, MAP_SHARED] = [3, 1];
const [PR_SET_KEEPCAPS, PR_SET_DUMPABLE] = [8, 4];
/** `_LINUX_CAPABILITY_VERSION_3`: two blocks of effective, permitted and inheritable bits. */
const CAPABILITIES_VERSION = 0x20080522;
const CAP_NET_BIND_SERVICE = 1 << 10;
const CAP_SETGID_SETUID = 1 << 6 | 1 << 7;

/** A user and a group by their numbers. */
export interface UserNumbers {
  readonly uid: number;
  readonly gid: number;
}

/** Calls of the start. Errors say which call failed. */
export class ProcessCalls {
  readonly #calls = openLibrary(SYMBOLS).symbols;

  get uid(): number {
    return this.#calls.getuid();
  }

  /** Leaves the session: signals of a terminal are for the main process. */
  leaveSession(): void {
    this.#calls.setsid();
  }

  /** Maps a file, also where it does not reach yet. Returns a function that makes buffers of its parts. */
  mapFile(path: string, bytes: number): (part: { at: number; bytes: number }) => ArrayBuffer {
    const name = new TextEncoder().encode(`${path}\0`);
    const file = this.#calls.open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
    if (file < 0) throw new Error(`Cannot open '${path}' to share memory`);
    const address = this.#calls.mmap(0n, BigInt(bytes), PROT_READ_WRITE, MAP_SHARED, file, 0n);
    this.#calls.close(file);
    // MAP_FAILED is -1.
    if (BigInt.asIntN(64, address) === -1n) throw new Error(`Cannot map '${path}'`);
    const buffers = new Map<number, ArrayBuffer>();
    return (part) => {
      if (part.at < 0 || part.bytes < 0 || part.at + part.bytes > bytes) {
        throw new RangeError(`no memory from ${part.at} on with ${part.bytes} bytes is shared`);
      }
      const known = buffers.get(part.at);
      if (known?.byteLength === part.bytes) return known;
      const start = Deno.UnsafePointer.create(address);
      const buffer = Deno.UnsafePointerView.getArrayBuffer(start!, part.bytes, part.at);
      buffers.set(part.at, buffer);
      return buffer;
    };
  }

  /**
   * Takes another user, if this one is root and may, and drops every capability but the one for ports
   * below 1024, if there is that one. Only this thread keeps it, which opens the sockets.
   */
  dropRights(user: UserNumbers | undefined): void {
    const [header, before] = [new Uint32Array([CAPABILITIES_VERSION, 0]), new Uint32Array(6)];
    this.#check("capget", this.#calls.capget(header, before));
    const mayChange = (before[1]! & CAP_SETGID_SETUID) === CAP_SETGID_SETUID;
    if (user && this.uid === 0 && mayChange) {
      this.#check("prctl", this.#calls.prctl(PR_SET_KEEPCAPS, 1n, 0n, 0n, 0n));
      this.#check("setgroups", this.#calls.setgroups(0n, 0n));
      this.#check("setresgid", this.#calls.setresgid(user.gid, user.gid, user.gid));
      this.#check("setresuid", this.#calls.setresuid(user.uid, user.uid, user.uid));
    }
    const kept = before[1]! & CAP_NET_BIND_SERVICE;
    const after = new Uint32Array([kept, kept, 0, 0, 0, 0]);
    this.#check("capset", this.#calls.capset(header, after));
    // Other processes of this user read no memory of it.
    this.#check("prctl", this.#calls.prctl(PR_SET_DUMPABLE, 0n, 0n, 0n, 0n));
  }

  #check(call: string, result: number): void {
    if (result !== 0) throw new Error(`Cannot drop rights: ${call} failed`);
  }
}
