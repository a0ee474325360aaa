/** The syscalls engine in a process whose loop is Deno's: it is turned again and again. */
import { assertEquals } from "@std/assert";
import { EventLoop } from "../../../backends/userspace/syscalls/event_loop.ts";
import { Libc, LIBC_PATHS } from "../../../backends/userspace/syscalls/libc.ts";
import { SyscallEngine } from "../../../backends/userspace/syscalls/syscall_engine.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { isMissing, type Requirement } from "../requirement.ts";

/** The need of the permission to load libc. */
export const LIBC: Requirement = [
  `--allow-ffi=${LIBC_PATHS.join(",")}`,
  LIBC_PATHS.some((path) => Deno.permissions.querySync({ name: "ffi", path }).state === "granted"),
];

/** An engine that is served until it is disposed of, which fails if a file is open then. */
export class TurnedEngine implements AsyncDisposable {
  readonly libc: Libc;
  /** What callbacks threw. */
  readonly errors: unknown[] = [];
  readonly loop: EventLoop;
  readonly engine: SyscallEngine;
  readonly #turning: Promise<void>;
  #isStopped = false;

  constructor(unixSocketFolders: readonly string[] = [], libc = new Libc()) {
    this.libc = libc;
    this.loop = new EventLoop(libc, systemClock, (error) => this.errors.push(error));
    this.engine = new SyscallEngine(this.loop, unixSocketFolders);
    this.#turning = this.#turn();
  }

  async #turn(): Promise<void> {
    while (!this.#isStopped) {
      this.loop.turn(0);
      await systemClock.nextTurn();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isStopped = true;
    await this.#turning;
    this.engine.close();
    this.loop.dispose();
    this.libc.unload();
    assertEquals([this.loop.size, this.errors], [0, []]);
  }
}

/** The engine with which tests of forwarding run: with `USERSPACE_ENGINE=syscalls`, that of system calls. */
export function engineUnderTest(unixSocketFolders?: readonly string[]): TurnedEngine | undefined {
  if (Deno.env.get("USERSPACE_ENGINE") !== "syscalls") return undefined;
  return isMissing("the syscalls engine", [LIBC]) ? undefined : new TurnedEngine(unixSocketFolders);
}
