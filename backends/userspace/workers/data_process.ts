import { messageOf } from "../../../lib/log/message_of.ts";
import { encodeFrame, FrameReader } from "../../../lib/net/message_frames.ts";
import { systemClock, type Timer } from "../../../lib/os/clock.ts";
import {
  type DataSettings,
  type Greeting,
  type GreetingAnswer,
  KEY_FILE,
  LISTENING,
  LONGEST_GREETING,
  LONGEST_MESSAGE,
  MEMORY_FILE,
  TRY_OUT,
} from "../../../lib/os/data_process_protocol.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { type FileRegion, MAPPED_BYTES, PAGE_BYTES } from "../../../lib/os/shared_memory.ts";
import { type PoolMessage, READY, UNCAUGHT } from "../../../lib/os/worker_pool.ts";
import { EventLoop } from "../syscalls/event_loop.ts";
import { Libc } from "../syscalls/libc.ts";
import { ProcessCalls, type UserNumbers } from "../syscalls/process_calls.ts";
import { SyscallEngine } from "../syscalls/syscall_engine.ts";
import { listenUnixStreams, type UnixStream } from "../syscalls/unix_streams.ts";
import { trySyscalls } from "./try_syscalls.ts";
import { serveScope, type WorkerFamily, type WorkerScope } from "./worker_thread.ts";

/** Time for the greeting. */
const GREETING_MS = 5000;
/** Connections that have not greeted. More are closed. */
const MOST_UNGREETED = 8;
/** A process that no main process ever used ends. */
const UNUSED_MS = 60_000;
/** A notice that nobody reads is dropped from so many bytes on; answers are bounded by the questions. */
const MOST_QUEUED = 1024 * 1024;

/** Arguments: the folder, the index, and the numbers of the user that it is to have, if any. */
export function serveAsDataProcess(args: readonly string[]): void {
  try {
    serve(args);
  } catch (error) {
    // Deno itself would print it in colours, and with a stack.
    Deno.stderr.writeSync(new TextEncoder().encode(`${messageOf(error)}\n`));
    Deno.exit(1);
  }
}

function serve([folder = "", index = "", uid, gid]: readonly string[]): void {
  const calls = new ProcessCalls();
  if (folder === TRY_OUT) return tryOut(calls);
  calls.leaveSession();
  const owner = calls.uid;
  const key = Deno.readTextFileSync(`${folder}/${KEY_FILE}`);
  const memoryAt = calls.mapFile(`${folder}/${MEMORY_FILE}`, MAPPED_BYTES);
  const loop = new EventLoop(new Libc(), systemClock, (error) => process.report(error));
  const process = new DataProcess(loop, { owner, key, memoryAt });
  // The process id tells it from another one that has the index, and listens no more.
  listenUnixStreams(loop, `${folder}/${index}-${Deno.pid}.sock`, process);
  calls.dropRights(userOf(uid, gid));
  // One of `deno compile` has those of the main process. Reading serves Unix sockets of endpoints.
  for (const name of ["run", "env", "sys", "net", "write"] as const) {
    Deno.permissions.revokeSync({ name });
  }
  Deno.stdout.writeSync(new TextEncoder().encode(`${LISTENING} ${Deno.pid}\n`));
  loop.run();
  Deno.exit(0);
}

/** Exits with 0 if the system calls work. Throws if they do not. */
function tryOut(calls: ProcessCalls): void {
  let failure: unknown;
  const loop = new EventLoop(new Libc(), systemClock, (error) => failure ??= error);
  calls.mapFile("/dev/zero", PAGE_BYTES)({ at: 0, bytes: 8 });
  trySyscalls(loop).catch((error) => failure ??= error);
  loop.run();
  if (failure !== undefined) throw failure;
  Deno.exit(0);
}

function userOf(uid: string | undefined, gid: string | undefined): UserNumbers | undefined {
  return uid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) };
}

interface OwnParts {
  /** The user that the process had first. */
  readonly owner: number;
  readonly key: string;
  readonly memoryAt: (region: FileRegion) => ArrayBuffer;
}

/** The state of a data process: it serves one main process at a time, and goes on without one. */
class DataProcess {
  readonly #loop: EventLoop;
  readonly #own: OwnParts;
  #main: UnixStream | undefined;
  #settings: DataSettings | undefined;
  #isRetired = false;
  /** Added to the loop's time it is the common one. */
  #offset = 0;
  #families: ReadonlyMap<string, WorkerFamily> = new Map();
  #scope: WorkerScope | undefined;
  #ungreeted = 0;
  #unused: Timer | undefined;

  constructor(loop: EventLoop, own: OwnParts) {
    this.#loop = loop;
    this.#own = own;
    this.#unused = loop.clock.setTimer(UNUSED_MS, () => loop.stop());
  }

  report(error: unknown): void {
    this.#post([UNCAUGHT, messageOf(error)]);
  }

  onError(error: unknown): void {
    this.report(error);
  }

  onStream(stream: UnixStream): void {
    // The folder lets nobody else in; its mode may have been changed.
    const isStranger = stream.peerUser !== this.#own.owner && stream.peerUser !== 0;
    if (isStranger || this.#ungreeted >= MOST_UNGREETED) return stream.close();
    this.#ungreeted++;
    let isUngreeted = true;
    const greet = () => {
      if (isUngreeted) this.#ungreeted--;
      isUngreeted = false;
      timer.cancel();
    };
    const end = () => {
      greet();
      if (stream === this.#main) this.#main = undefined;
      stream.close();
    };
    const timer = this.#loop.clock.setTimer(GREETING_MS, end);
    const reader = new FrameReader(LONGEST_GREETING, (message) => {
      if (stream === this.#main) return this.#scope?.onmessage?.(eventOf(message));
      if (!isUngreeted) return;
      greet();
      if (this.#greet(stream, message as Greeting)) reader.longest = LONGEST_MESSAGE;
      else end();
    });
    const onData = (bytes: Uint8Array) => {
      try {
        reader.take(bytes);
      } catch (error) {
        if (stream === this.#main) this.report(error);
        end();
      }
    };
    stream.user = { onData, onEnd: end };
  }

  /** Returns whether it is the main process from now on. */
  #greet(stream: UnixStream, greeting: Greeting): boolean {
    if (greeting?.key !== this.#own.key) return false;
    const answer = (kind: GreetingAnswer["kind"]) => {
      const now = this.#loop.clock.now() + this.#offset;
      stream.write(encodeFrame({ kind, pid: Deno.pid, now }));
      return kind === "ours";
    };
    if (this.#main) return answer("busy");
    if (greeting.kind === "end") {
      this.#loop.stop();
      return false;
    }
    const { drainTimeoutMs } = greeting;
    // Its sockets are closed, so it is of no use even to one with its settings.
    if (this.#isRetired) return answer("retired");
    const settings = greeting.kind === "serve" ? greeting.settings : undefined;
    if (greeting.kind === "serve" && this.#settings === undefined) {
      this.#settings = greeting.settings;
      this.#offset = greeting.now - this.#loop.clock.now();
    } else if (!settings || JSON.stringify(settings) !== JSON.stringify(this.#settings)) {
      this.#isRetired = true;
      // Its sockets are closed when the answer is sent.
      const retired = this.#families.values().map((family) => family.retire(drainTimeoutMs));
      void Promise.allSettled(retired).then(() => this.#loop.stop());
      return answer("retired");
    }
    this.#unused?.cancel();
    this.#main = stream;
    if (!this.#scope) this.#serve(this.#settings!);
    return answer("ours");
  }

  #serve({ openFiles: { limit, ports }, unixSocketFolders }: DataSettings): void {
    const scope: WorkerScope = {
      onmessage: null,
      postMessage: (message) => this.#post(message as PoolMessage),
    };
    this.#scope = scope;
    this.#families = serveScope(scope, {
      clock: this.#loop.clock,
      network: systemNetwork,
      random: Math.random,
      process: {
        openFiles: new OpenFiles(limit, ports).share(1),
        memoryAt: this.#own.memoryAt,
        engine: new SyscallEngine(this.#loop, unixSocketFolders),
      },
    });
  }

  #post(message: unknown): void {
    // It is answered to the greeting instead.
    if (message === READY) return;
    const { queuedBytes = 0 } = this.#main ?? {};
    const [, content] = message as PoolMessage;
    const isNotice = Array.isArray(content) && content[0] === "tell";
    if (isNotice && queuedBytes > MOST_QUEUED) return;
    this.#main?.write(encodeFrame(message));
  }
}

function eventOf(message: unknown): MessageEvent<PoolMessage> {
  return new MessageEvent("message", { data: message as PoolMessage });
}
