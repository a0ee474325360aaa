import { assertEquals, assertRejects } from "@std/assert";
import { systemClock } from "./clock.ts";

/** Times that a 32-bit timer cannot hold. */
const LONG_TIMES = [2 ** 31, 2 ** 32 + 1, 2 ** 63 / 1e6, Infinity];

/** Time enough for a timer that ends at once. */
async function manyTurns(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 30));
}

Deno.test("systemClock.setTimer() does not end at once if the time is longer than 32 bits", async (t) => {
  for (const ms of LONG_TIMES) {
    await t.step(`${ms} ms`, async () => {
      let ended = false;
      const timer = systemClock.setTimer(ms, () => ended = true);
      await manyTurns();
      timer.cancel();
      assertEquals(ended, false);
    });
  }
});

Deno.test("systemClock.sleep() does not end at once if the time is longer than 32 bits", async (t) => {
  for (const ms of LONG_TIMES) {
    await t.step(`${ms} ms`, async () => {
      const controller = new AbortController();
      const slept = systemClock.sleep(ms, controller.signal);
      slept.catch(() => {});
      await manyTurns();
      controller.abort(new Error("woken"));
      await assertRejects(() => slept, Error, "woken");
    });
  }
});

Deno.test("systemClock.nextTurn() lets sockets and timers have their turn", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  using client = await Deno.connect({ hostname: "127.0.0.1", port: listener.addr.port });
  using server = await listener.accept();
  const byte = new Uint8Array(1);
  let roundTrips = 0;
  let ticks = 0;
  const timer = setInterval(() => ticks++, 1);
  const talk = async () => {
    for (; roundTrips < 20; roundTrips++) {
      await client.write(byte);
      await server.read(byte);
      await server.write(byte);
      await client.read(byte);
    }
  };
  const talked = talk();
  // A pause that goes on before the sockets had their turn needs twice as many.
  for (let turn = 0; turn < 60 && roundTrips < 20; turn++) {
    compute(1);
    await systemClock.nextTurn();
  }
  clearInterval(timer);
  const done = roundTrips;
  await talked;
  assertEquals(done, 20);
  assertEquals(ticks > 0, true);
});

function compute(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}
