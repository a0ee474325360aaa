import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { encodeFrame, FrameReader } from "../net/message_frames.ts";
import type { Clock } from "./clock.ts";
import type { CommandRunner } from "./command_runner.ts";
import {
  DATA_PROCESS,
  type DataSettings,
  type Greeting,
  type GreetingAnswer,
  KEY_FILE,
  LISTENING,
  LONGEST_MESSAGE,
  MEMORY_FILE,
  TRY_OUT,
} from "./data_process_protocol.ts";
import { connectUnix, type UnixConnection } from "./network.ts";
import { FileMemory } from "./shared_memory.ts";
import { READY, type WorkerCarrier, type WorkerThread } from "./worker_pool.ts";

/** Time for an answer to a greeting. A process that takes longer hangs. */
const GREETING_MS = 5000;
/** Time for another main process, which is about to end, to let go. */
const BUSY_MS = 5000;
const BUSY_PAUSE_MS = 100;
const READ_BYTES = 65_536;

/** The socket of a data process: its index and its process id. */
const SOCKET = /^(\d+)-(\d+)\.sock$/;

interface Edges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly logger: Logger;
}

interface Options {
  /** Where their sockets are, for their owner only. */
  readonly folder: string;
  /** The command line of this program as a data process, without its arguments. */
  readonly program: readonly string[];
  readonly settings: DataSettings;
  readonly drainTimeoutMs: number;
  /** Numbers of the user and group that they take. @default {that of this process} */
  readonly user?: readonly [uid: number, gid: number] | undefined;
}

/** Processes that carry connections and outlive this one, as it finds or starts them. */
export class DataProcesses implements WorkerCarrier {
  readonly kind = "processes";
  readonly memory: FileMemory;
  /** Those that were found. */
  readonly found: ReadonlyMap<number, Greeted>;
  readonly #edges: Edges;
  readonly #options: Options;
  readonly #key: string;
  readonly #offset: number;
  readonly #running = new Set<DataProcess>();

  private constructor(
    edges: Edges,
    options: Options,
    key: string,
    { found, memory }: {
      readonly found: ReadonlyMap<number, Greeted>;
      readonly memory: FileMemory;
    },
  ) {
    this.#edges = edges;
    this.#options = options;
    this.#key = key;
    this.found = found;
    this.memory = memory;
    const [first] = found.values();
    this.#offset = first ? first.now - edges.clock.now() : 0;
  }

  /**
   * Takes over the processes that run with the same settings, and has others listen no more. Rejects if
   * another main process uses them, or the folder is not safe.
   */
  static async open(edges: Edges, options: Options): Promise<DataProcesses> {
    const { folder, settings, drainTimeoutMs } = options;
    await makePrivate(folder);
    const key = await readKey(folder);
    const found = new Map<number, Greeted>();
    const { clock, logger } = edges;
    for (const { path, index, pid } of await socketsIn(folder)) {
      const greeting = { kind: "serve", key, settings, now: clock.now(), drainTimeoutMs } as const;
      const greeted = await greetOld(edges, path, pid, greeting);
      if (greeted && found.has(index)) {
        // The main process before could not end it.
        greeted.port.close();
        await kill(edges, pid, path);
      } else if (greeted) found.set(index, greeted);
    }
    const path = `${folder}/${MEMORY_FILE}`;
    const isNew = found.size === 0;
    // Those that listen no more keep the file that they have.
    if (isNew) remove(path);
    else logger.info("Taking over data processes with their connections", { count: found.size });
    const file = await Deno.open(path, { read: true, write: true, createNew: isNew, mode: 0o600 });
    return new DataProcesses(edges, options, key, { found, memory: new FileMemory(file) });
  }

  /** Has the processes of a folder, if there are any, listen no more. Rejects if they are in use. */
  static async retire(edges: Edges, folder: string, drainTimeoutMs: number): Promise<void> {
    const sockets = await socketsIn(folder).catch(() => []);
    if (sockets.length === 0) return;
    const key = await readKey(folder);
    for (const { path, pid } of sockets) {
      await greetOld(edges, path, pid, { kind: "retire", key, drainTimeoutMs });
    }
  }

  /** Has a process relay a connection to itself. Returns why it cannot; `undefined` = it can. */
  static async tryOut(
    { commands }: Pick<Edges, "commands">,
    program: readonly string[],
  ): Promise<string | undefined> {
    try {
      const args = ["--no-new-privs", "--", ...program, DATA_PROCESS, TRY_OUT];
      const { code, stderr } = await commands.run("setpriv", args);
      const [line = ""] = stderr.split("\n").filter((line) => line.trim() !== "");
      return code === 0 ? undefined : line || `it exited with status ${code}`;
    } catch (error) {
      return messageOf(error);
    }
  }

  now(): number {
    return this.#edges.clock.now() + this.#offset;
  }

  readonly spawn = (_name: string, index: number): WorkerThread => {
    const { clock } = this.#edges;
    const process = new DataProcess(this.#edges, this.#options, {
      index,
      found: this.found.get(index),
      greeting: () => {
        const { settings, drainTimeoutMs } = this.#options;
        const now = clock.now() + this.#offset;
        return { kind: "serve", key: this.#key, settings, now, drainTimeoutMs };
      },
    });
    (this.found as Map<number, Greeted>).delete(index);
    this.#running.add(process);
    return process;
  };

  leave(): void {
    for (const process of this.#running) process.leave();
    this.memory.close();
  }

  close(): void {
    this.memory.close();
    remove(`${this.#options.folder}/${MEMORY_FILE}`);
  }

  /** Ends all processes of a folder and removes it. Returns their number, or that it would end. */
  static async cleanUp(
    edges: Edges,
    folder: string,
    { isDry }: { readonly isDry: boolean },
  ): Promise<{ readonly ended: readonly number[]; readonly failed: readonly string[] }> {
    const ended: number[] = [];
    const failed: string[] = [];
    const sockets = await socketsIn(folder).catch(() => []);
    for (const { path, pid } of sockets) {
      if (isDry) {
        const connection = await connectUnix(path).catch(() => undefined);
        connection?.close();
        if (connection) ended.push(pid);
        continue;
      }
      const key = await readKey(folder);
      const greeted = await greet(edges.clock, path, { kind: "end", key });
      if (greeted === "silent") await kill(edges, pid, path);
      else if (greeted !== "gone" && greeted !== "closed") {
        greeted.port.close();
        failed.push(`data process ${pid}: a kube-relay uses it; stop that first`);
        continue;
      }
      if (greeted !== "gone") ended.push(pid);
    }
    if (!isDry && failed.length === 0) {
      await Deno.remove(folder, { recursive: true }).catch(() => {});
    }
    return { ended, failed };
  }
}

/** A data process that has answered. */
interface Greeted {
  readonly kind: GreetingAnswer["kind"];
  readonly pid: number;
  readonly now: number;
  readonly port: FramePort;
  readonly path: string;
}

/** One process, as a pool uses a thread. */
class DataProcess implements WorkerThread {
  onmessage: WorkerThread["onmessage"] = null;
  onerror: WorkerThread["onerror"] = null;
  readonly #edges: Edges;
  readonly #stop = new AbortController();
  #greeted: Greeted | undefined;
  #isChild = false;
  #hasEnded = false;
  /** What it printed last: the reason of its end. */
  #lastLine = "";

  constructor(
    edges: Edges,
    options: Options,
    { index, found, greeting }: {
      readonly index: number;
      readonly found: Greeted | undefined;
      readonly greeting: () => Greeting;
    },
  ) {
    this.#edges = edges;
    if (found) queueMicrotask(() => this.#use(found));
    else void this.#start(options, index, greeting);
  }

  postMessage(message: unknown): void {
    this.#greeted?.port.post(message);
  }

  terminate(): void {
    this.leave();
    this.#stop.abort();
    if (!this.#greeted) return;
    const { path, pid } = this.#greeted;
    if (this.#isChild) remove(path);
    else void kill(this.#edges, pid, path);
  }

  /** It is no concern of this process any more. */
  leave(): void {
    this.#hasEnded = true;
    this.#greeted?.port.close();
  }

  async #start(
    { folder, program, user }: Options,
    index: number,
    greeting: () => Greeting,
  ): Promise<void> {
    this.#isChild = true;
    const args = [
      // Capabilities of the unit that it does not need; it drops the others itself.
      ...["--no-new-privs", "--inh-caps=-net_admin", "--ambient-caps=-net_admin", "--"],
      ...[...program, DATA_PROCESS, folder, `${index}`],
      ...(user ?? []).map(String),
    ];
    const onLine = async (line: string) => {
      const [word, pid] = line.split(" ");
      if (word !== LISTENING) return;
      const greeted = await greet(
        this.#edges.clock,
        `${folder}/${index}-${pid}.sock`,
        greeting(),
      );
      if (typeof greeted === "string") this.#fail(`it is ${greeted} when it is greeted`);
      else this.#use(greeted);
    };
    const onErrorLine = (line: string) => {
      if (line.trim() === "") return;
      this.#lastLine = line;
      this.#edges.logger.warn("A data process printed a message", { worker: index + 1, line });
    };
    const options = { onLine, onErrorLine, signal: this.#stop.signal, timeoutMs: Infinity };
    try {
      const { code } = await this.#edges.commands.run("setpriv", args, options);
      this.#fail(this.#lastLine || `it exited with status ${code}`);
    } catch (error) {
      this.#fail(messageOf(error));
    }
  }

  #use(greeted: Greeted): void {
    if (this.#hasEnded) return greeted.port.close();
    this.#greeted = greeted;
    const { port } = greeted;
    const receive = (data: unknown) => void this.onmessage?.(new MessageEvent("message", { data }));
    receive(READY);
    port.listen(receive, (reason) => this.#fail(reason));
  }

  #fail(message: string): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.onerror?.(new ErrorEvent("error", { message, cancelable: true }));
  }
}

/** A connection on which messages go both ways. */
class FramePort {
  readonly #connection: UnixConnection;
  readonly #queue: Uint8Array[] = [];
  #isWriting = false;
  #isClosed = false;
  /** What came before anyone listened. */
  readonly #early: unknown[] = [];
  #onMessage: (message: unknown) => void = (message) => void this.#early.push(message);
  #onEnd: ((reason: string) => void) | undefined;
  #ended: string | undefined;

  constructor(connection: UnixConnection) {
    this.#connection = connection;
    void this.#read();
  }

  listen(onMessage: (message: unknown) => void, onEnd: (reason: string) => void): void {
    for (const message of this.#early.splice(0)) onMessage(message);
    this.#onMessage = onMessage;
    this.#onEnd = onEnd;
    if (this.#ended !== undefined) onEnd(this.#ended);
  }

  post(message: unknown): void {
    if (this.#isClosed) return;
    this.#queue.push(encodeFrame(message));
    if (!this.#isWriting) void this.#write();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#connection.close();
  }

  async #write(): Promise<void> {
    this.#isWriting = true;
    try {
      while (!this.#isClosed && this.#queue.length > 0) {
        const frame = this.#queue.shift()!;
        for (let sent = 0; sent < frame.length;) {
          sent += await this.#connection.write(frame.subarray(sent));
        }
      }
    } catch (error) {
      this.#end(messageOf(error));
    }
    this.#isWriting = false;
  }

  async #read(): Promise<void> {
    const reader = new FrameReader(LONGEST_MESSAGE, (message) => this.#onMessage(message));
    const buffer = new Uint8Array(READ_BYTES);
    try {
      for (;;) {
        const count = await this.#connection.read(buffer);
        if (count === null) break;
        reader.take(buffer.subarray(0, count));
      }
      this.#end("it has ended");
    } catch (error) {
      this.#end(messageOf(error));
    }
  }

  #end(reason: string): void {
    if (this.#isClosed || this.#ended !== undefined) return;
    this.close();
    this.#ended = reason;
    this.#onEnd?.(reason);
  }
}

/** `gone`: nothing listens; `closed`: it did not answer and let go; `silent`: it does not answer. */
type NoGreeting = "gone" | "closed" | "silent";

async function greet(
  clock: Clock,
  path: string,
  greeting: Greeting,
): Promise<Greeted | NoGreeting> {
  const connection = await connectUnix(path).catch(() => undefined);
  if (!connection) return "gone";
  const port = new FramePort(connection);
  const answered = Promise.withResolvers<Greeted | NoGreeting>();
  const timer = clock.setTimer(GREETING_MS, () => answered.resolve("silent"));
  port.listen(
    (message) => answered.resolve({ now: 0, ...message as GreetingAnswer, port, path }),
    () => answered.resolve("closed"),
  );
  port.post(greeting);
  const answer = await answered.promise;
  timer.cancel();
  if (typeof answer === "string") port.close();
  return answer;
}

/**
 * Greets a process that an earlier main process started; one that does not answer is ended. Returns it if
 * it is of use. Rejects if another main process uses it.
 */
async function greetOld(
  edges: Edges,
  path: string,
  pid: number,
  greeting: Extract<Greeting, { readonly drainTimeoutMs: number }>,
): Promise<Greeted | undefined> {
  const { clock, logger } = edges;
  const until = clock.now() + BUSY_MS;
  for (;;) {
    const greeted = await greet(clock, path, greeting);
    if (greeted === "silent") await kill(edges, pid, path);
    else if (greeted === "gone" || greeted === "closed") remove(path);
    if (typeof greeted === "string") return undefined;
    if (greeted.kind === "ours") return greeted;
    greeted.port.close();
    if (greeted.kind === "retired") {
      logger.info("A data process with other settings listens no more; its connections may end", {
        ...{ pid, drainTimeoutMs: greeting.drainTimeoutMs },
      });
      return undefined;
    }
    if (clock.now() > until) {
      throw new Error(
        `Cannot use data process ${pid}: another kube-relay uses it; stop that first`,
      );
    }
    await clock.sleep(BUSY_PAUSE_MS);
  }
}

/** Ends a process that this one did not start: Deno signals its own children only. */
async function kill({ commands, logger }: Edges, pid: number, path: string): Promise<void> {
  remove(path);
  const args = ["--no-new-privs", "--", "kill", "-KILL", `${pid}`];
  await commands.run("setpriv", args).catch((error) =>
    logger.warn("Cannot end a data process", { pid, error })
  );
}

/** At once: this process may be about to end. */
function remove(path: string): void {
  try {
    Deno.removeSync(path);
  } catch {
    // It is gone.
  }
}

async function makePrivate(folder: string): Promise<void> {
  await Deno.mkdir(folder, { recursive: true, mode: 0o700 });
  const { isDirectory, mode, uid } = await Deno.lstat(folder);
  if (isDirectory && uid === Deno.uid() && ((mode ?? 0) & 0o077) === 0) return;
  throw new Error(
    `Cannot use the folder '${folder}' for data processes: it must be a directory of this user ` +
      "with mode 0700",
  );
}

async function readKey(folder: string): Promise<string> {
  const path = `${folder}/${KEY_FILE}`;
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    const key = crypto.randomUUID();
    await Deno.writeTextFile(path, key, { createNew: true, mode: 0o600 });
    return key;
  }
}

async function socketsIn(
  folder: string,
): Promise<readonly { readonly path: string; readonly index: number; readonly pid: number }[]> {
  const names = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name);
  return names.sort().flatMap((name) => {
    const [, index, pid] = SOCKET.exec(name) ?? [];
    return pid ? { path: `${folder}/${name}`, index: Number(index), pid: Number(pid) } : [];
  });
}
