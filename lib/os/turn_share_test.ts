import { assert, assertEquals } from "@std/assert";
import { systemClock } from "./clock.ts";
import { TurnShare } from "./turn_share.ts";

/** Holds up the event loop. */
function work(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

Deno.test("TurnShare.take() lets a flood of work through in turns, in its order, with other work in between", async () => {
  const turns = new TurnShare({ clock: systemClock }, 8);
  const done: number[] = [];
  let isDone = false;
  let othersTurns = 0;
  const other = (async () => {
    for (; !isDone; othersTurns++) await systemClock.yieldToEventLoop();
  })();
  await Promise.all(Array.from({ length: 50 }, async (_, index) => {
    await turns.take();
    work(1);
    done.push(index);
  }));
  isDone = true;
  await other;
  await turns.ended();
  assertEquals(done, Array.from({ length: 50 }, (_, index) => index));
  assert(othersTurns >= 50 / 8 - 1, `${othersTurns} turns of others`);
});
