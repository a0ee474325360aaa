import { assertEquals } from "@std/assert";
import { systemClock } from "../../../lib/os/clock.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import type { SocketKey } from "../listeners.ts";
import { WorkerLink } from "./worker_link.ts";
import type { Command, MainMessage } from "./worker_protocol.ts";

Deno.test("WorkerLink queues the commands of a node with very many sockets", () => {
  const link = new WorkerLink({
    ...{ clock: systemClock, post() {}, hear() {}, onRefused() {}, onHang() {} },
  });
  const commands: readonly Command[] = Array.from(
    { length: 200_000 },
    () => ({ op: "close", socket: "127.0.0.1:80/TCP" as SocketKey }),
  );
  link.queue(commands);
  assertEquals(link.isBusy, true);
});

interface TestLink {
  readonly clock: FakeClock;
  readonly link: WorkerLink;
  readonly posted: MainMessage[];
  hangs: number;
}

function testLink(): TestLink {
  const clock = new FakeClock();
  const posted: MainMessage[] = [];
  const link = new WorkerLink({
    ...{ clock, onRefused() {}, hear() {} },
    post: (message) => void posted.push(message),
    onHang: () => void test.hangs++,
  });
  const test: TestLink = { clock, link, posted, hangs: 0 };
  return test;
}

Deno.test("WorkerLink gives a worker up that is silent, but not after a stall of this thread", async () => {
  const test = testLink();
  const { clock, link, posted } = test;
  const answered = link.ask({ kind: "close" });
  // Timers that are overdue fire before the answer is delivered that has come meanwhile.
  await clock.advance(30_000);
  assertEquals(test.hangs, 0);
  link.receive(["answer", posted[0]![1] as number, undefined]);
  await answered;
  await clock.advance(60_000);
  assertEquals(test.hangs, 0);
  link.ask({ kind: "close" }).catch(() => {});
  await clock.advance(40_000);
  assertEquals(test.hangs, 1);
});

Deno.test("WorkerLink waits for a worker that is heard while it works", async () => {
  const test = testLink();
  const { clock, link } = test;
  link.ask({ kind: "close" }).catch(() => {});
  for (let minutes = 0; minutes < 10; minutes++) {
    for (let seconds = 0; seconds < 60; seconds += 20) {
      await clock.advance(20_000);
      link.receive(["tell", { kind: "log", message: "", fields: {} }]);
    }
  }
  assertEquals(test.hangs, 0);
  await clock.advance(40_000);
  assertEquals(test.hangs, 1);
});
