import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { threadCarrier } from "../../tests/support/stages/userspace_backend.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { READY, WorkerPool, type WorkerThread } from "./worker_pool.ts";

/** Threads that do nothing by themselves. */
class FakeThreads {
  readonly threads: (WorkerThread & { name: string; isTerminated: boolean })[] = [];

  readonly spawn = (name: string): WorkerThread => {
    const thread = {
      ...{ name, isTerminated: false, onmessage: null, onerror: null },
      postMessage() {},
      terminate: () => void (thread.isTerminated = true),
    };
    this.threads.push(thread);
    return thread;
  };

  start(index = this.threads.length - 1): void {
    this.threads[index]?.onmessage?.(new MessageEvent("message", { data: READY }));
  }

  fail(index = this.threads.length - 1): void {
    const event = new ErrorEvent("error", { message: "a bug", cancelable: true });
    this.threads[index]?.onerror?.(event);
    assertEquals(event.defaultPrevented, true, "the error ends the main thread otherwise");
  }
}

function testPool(count: number) {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const threads = new FakeThreads();
  const pool = new WorkerPool({ clock, logger }, threadCarrier(clock, threads.spawn), { count });
  const events: string[] = [];
  pool.subscribe("test", {
    onStarted: (index) => void events.push(`${index} started`),
    onEnded: (index, { message }) => void events.push(`${index} ended: ${message}`),
    onMessage() {},
  });
  return { clock, events, logger, pool, threads };
}

Deno.test("WorkerPool.start() resolves when each thread runs or has failed", async () => {
  const { events, pool, threads } = testPool(2);
  const started = pool.start();
  assertEquals(threads.threads.map(({ name }) => name), [
    "kube-relay worker 1",
    "kube-relay worker 2",
  ]);
  threads.start(0);
  threads.fail(1);
  await started;
  assertEquals([pool.running, pool.restarts], [[0], 1]);
  assertEquals(events, ["0 started"]);
});

Deno.test("WorkerPool restarts a thread at once, and one that ends again and again ever later", async () => {
  const { clock, events, logger, pool, threads } = testPool(2);
  void pool.start();
  threads.start(0);
  threads.start(1);
  for (let round = 0; round < 9; round++) {
    threads.fail();
    await clock.advance(Number(logger.lines.at(-1)?.fields.restartInMs));
    threads.start();
  }
  const pauses = logger.lines.map(({ fields }) => fields.restartInMs);
  assertEquals(pauses, [0, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
  await clock.advance(60_000);
  threads.fail();
  assertEquals(logger.lines.at(-1)?.fields.restartInMs, 0, "it ran for long");
  assertEquals(events.slice(0, 3), ["0 started", "1 started", "1 ended: a bug"]);
});

Deno.test("WorkerPool starts a thread after a second at the latest while no other one runs", async () => {
  const { clock, logger, pool, threads } = testPool(2);
  void pool.start();
  for (const index of [0, 1]) threads.start(index);
  for (let round = 0; round < 4; round++) {
    for (const thread of threads.threads.slice(-2)) threads.fail(threads.threads.indexOf(thread));
    assertEquals(pool.running, []);
    await clock.advance(8000);
    for (const thread of threads.threads.slice(-2)) threads.start(threads.threads.indexOf(thread));
  }
  const pauses = logger.lines.map(({ fields }) => fields.restartInMs);
  assertEquals(pauses, [0, 0, 1000, 1000, 2000, 1000, 4000, 1000]);
});

Deno.test("WorkerPool starts a thread again that is silent for 30 s, and continues with the others", async () => {
  const { clock, events, logger, pool, threads } = testPool(2);
  let isStarted = false;
  void pool.start().then(() => isStarted = true);
  threads.start(0);
  await clock.advance(29_999);
  assertEquals([isStarted, threads.threads.length], [false, 2]);
  await clock.advance(1);
  assertEquals([isStarted, pool.running, pool.restarts], [true, [0], 1]);
  assertEquals(logger.lines.map(({ fields }) => fields), [
    { worker: 2, reason: "it did not start within 30 s", restartInMs: 0 },
  ]);
  threads.start(1);
  assertEquals(pool.running, [0], "the silent one is too late");
  threads.start();
  await clock.advance(120_000);
  assertEquals([events, threads.threads.length], [["0 started", "1 started"], 3]);
});

Deno.test("WorkerPool.run() rejects when a thread hangs, and resolves when it is to end", async () => {
  const { events, pool, threads } = testPool(2);
  void pool.start();
  for (const index of [0, 1]) threads.start(index);
  const stop = new AbortController();
  const [ended, running] = [pool.run(stop.signal), pool.run(new AbortController().signal)];
  stop.abort();
  await ended;
  pool.giveUp(1);
  await assertRejects(() => running, Error, "worker 2 hangs");
  assertEquals(events.at(-1), "1 ended: it does not answer", "its questions fail");
});

Deno.test("WorkerPool.start() waits for no thread any more when the run is to end", async () => {
  const { clock, pool, threads } = testPool(2);
  const stop = new AbortController();
  const running = pool.run(stop.signal);
  let isStarted = false;
  void pool.start().then(() => isStarted = true);
  threads.start(0);
  await clock.advance(1_000);
  assertEquals(isStarted, false);
  stop.abort();
  await running;
  await clock.advance(0);
  assertEquals([isStarted, pool.running], [true, [0]]);
  pool[Symbol.dispose]();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("WorkerPool ignores what a thread posts after its end, and starts none after its own", async () => {
  const { clock, pool, threads } = testPool(1);
  void pool.start();
  threads.start();
  pool.end(0, "it does not answer");
  await clock.advance(0);
  threads.start(0);
  assertEquals([threads.threads.length, pool.running], [2, []]);
  threads.fail(1);
  pool[Symbol.dispose]();
  await clock.advance(120_000);
  assertEquals(threads.threads.map(({ isTerminated }) => isTerminated), [true, true]);
});
