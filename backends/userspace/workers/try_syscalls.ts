import type { EventLoop } from "../syscalls/event_loop.ts";
import { SyscallEngine } from "../syscalls/syscall_engine.ts";
import { ConnectAttempt, type ConnectionSource, type EngineConnection } from "../engine.ts";

const LOOPBACK = { hostname: "127.0.0.1", port: 0 };
/** So many that they are moved by pipes. */
const BYTES = 512 * 1024;
const PIECE = 64 * 1024;
const LONGEST_MS = 10_000;

class Attempt extends ConnectAttempt {
  readonly #result = Promise.withResolvers<EngineConnection>();
  readonly result: Promise<EngineConnection> = this.#result.promise;

  onConnected(connection: EngineConnection): void {
    this.#result.resolve(connection);
  }

  onFailed(error: unknown): void {
    this.#result.reject(error);
  }
}

/**
 * Relays a connection of this process to itself, and then stops the loop. Rejects if the system calls
 * that it takes do not work.
 */
export async function trySyscalls(loop: EventLoop): Promise<void> {
  const engine = new SyscallEngine(loop);
  const late = Promise.withResolvers<never>();
  const timer = loop.clock.setTimer(
    LONGEST_MS,
    () => late.reject(new Error(`a connection to itself took over ${LONGEST_MS / 1000} s`)),
  );
  const sources: ConnectionSource[] = [];
  const listen = (take: (connection: EngineConnection) => Promise<void>) => {
    const source = engine.listenTcp(LOOPBACK, true);
    sources.push(source);
    void source.serve({
      take: (connection) => void take(connection).catch(late.reject),
      onError: late.reject,
    });
    return source.addr;
  };
  const connect = (addr: typeof LOOPBACK) => {
    const attempt = new Attempt();
    engine.connect(addr, attempt, undefined);
    return Promise.race([attempt.result, late.promise]);
  };
  try {
    const endpoint = listen(echo);
    const front = listen(async (client) => {
      const connection = await connect(endpoint);
      const close = () => {
        client.close();
        connection.close();
      };
      engine.relay(client, connection, { onData() {}, close, onEnded() {} });
    });
    const client = await connect(front);
    void write(client).catch(late.reject);
    await Promise.race([readAll(client), late.promise]);
    client.close();
  } finally {
    timer.cancel();
    for (const source of sources) source.close();
    loop.stop();
  }
}

async function echo(connection: EngineConnection): Promise<void> {
  const buffer = new Uint8Array(PIECE);
  for (;;) {
    const count = await connection.read(buffer);
    if (count === null) return connection.close();
    for (let sent = 0; sent < count;) sent += await connection.write(buffer.subarray(sent, count));
  }
}

async function write(connection: EngineConnection): Promise<void> {
  const piece = new Uint8Array(PIECE);
  for (let sent = 0; sent < BYTES;) sent += await connection.write(piece);
}

async function readAll(connection: EngineConnection): Promise<void> {
  const buffer = new Uint8Array(PIECE);
  for (let received = 0; received < BYTES;) {
    const count = await connection.read(buffer);
    if (count === null) throw new Error("a connection to itself ended early");
    received += count;
  }
}
