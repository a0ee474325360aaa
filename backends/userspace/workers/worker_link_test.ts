import { assertEquals } from "@std/assert";
import { systemClock } from "../../../lib/os/clock.ts";
import type { ChannelMessage } from "../../../lib/os/worker_channel.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { WorkerLink } from "./worker_link.ts";
import type { Command } from "./worker_protocol.ts";

Deno.test("WorkerLink queues the commands of a node with very many sockets", () => {
  const link = new WorkerLink({
    ...{ clock: systemClock, post() {}, onRefused() {}, onHang() {} },
    handler: { answer() {}, hear() {} },
  });
  const commands: readonly Command[] = Array.from(
    { length: 200_000 },
    (_, socket) => ({ op: "close", socket }),
  );
  link.queue(commands);
  assertEquals(link.isBusy, true);
});

Deno.test("WorkerLink gives a worker up that does not answer, but not after a stall of this thread", async () => {
  const clock = new FakeClock();
  const posted: ChannelMessage[] = [];
  let hangs = 0;
  const link = new WorkerLink({
    ...{ clock, onRefused() {}, handler: { answer() {}, hear() {} } },
    post: (message) => void posted.push(message),
    onHang: () => void hangs++,
  });
  const answered = link.ask({ kind: "close" });
  // Timers that are overdue fire before the answer is delivered that has come meanwhile.
  await clock.advance(30_000);
  assertEquals(hangs, 0);
  link.receive(["answer", posted[0]![1] as number, undefined]);
  await answered;
  await clock.advance(60_000);
  assertEquals(hangs, 0);
  link.ask({ kind: "close" }).catch(() => {});
  for (let seconds = 0; seconds < 40; seconds++) await clock.advance(1000);
  assertEquals(hangs, 1);
});
