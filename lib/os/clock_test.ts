import { assert, assertEquals, assertRejects } from "@std/assert";
import { systemClock } from "./clock.ts";

/** Times that a 32-bit timer cannot hold. */
const LONG_TIMES = [2 ** 31, 2 ** 32 + 1, 2 ** 63 / 1e6, Infinity];

/** Time enough for a timer that ends at once. */
async function manyTurns(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 30));
}

for (const ms of LONG_TIMES) {
  Deno.test(`systemClock does not end ${ms} ms at once, which is longer than 32 bits`, async () => {
    let ended = false;
    const timer = systemClock.setTimer(ms, () => ended = true);
    const controller = new AbortController();
    const slept = systemClock.sleep(ms, controller.signal);
    slept.catch(() => {});
    await manyTurns();
    timer.cancel();
    controller.abort(new Error("woken"));
    await assertRejects(() => slept, Error, "woken");
    assertEquals(ended, false);
  });
}

Deno.test("systemClock.nextTurn() lets sockets and timers have their turn", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  using client = await Deno.connect({ hostname: "127.0.0.1", port: listener.addr.port });
  using server = await listener.accept();
  let ticks = 0;
  const timer = setInterval(() => ticks++, 1);
  // A busy kernel may deliver late, so not every attempt is in time.
  let isInTime = false;
  for (let attempt = 0; attempt < 20 && !isInTime; attempt++) {
    isInTime = await talkInTurns(client, server);
  }
  assert(isInTime);
  clearInterval(timer);
  assert(ticks > 0);
});

/**
 * Whether 20 round trips take at most 60 turns. A pause that goes on before the sockets had theirs
 * needs twice as many.
 */
async function talkInTurns(client: Deno.Conn, server: Deno.Conn): Promise<boolean> {
  const byte = new Uint8Array(1);
  let roundTrips = 0;
  const talk = async () => {
    for (; roundTrips < 20; roundTrips++) {
      await client.write(byte);
      await server.read(byte);
      await server.write(byte);
      await client.read(byte);
    }
  };
  const talked = talk();
  for (let turn = 0; turn < 60 && roundTrips < 20; turn++) {
    compute(1);
    await systemClock.nextTurn();
  }
  const isDone = roundTrips === 20;
  await talked;
  return isDone;
}

function compute(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}
