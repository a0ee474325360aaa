import { assertEquals } from "@std/assert";
import { systemClock } from "../../../lib/os/clock.ts";
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
