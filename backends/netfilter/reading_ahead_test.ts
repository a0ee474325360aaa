import { assertEquals, assertRejects } from "@std/assert";
import { ReadingAhead } from "./reading_ahead.ts";

Deno.test("ReadingAhead begins at once and keeps what was read", async () => {
  const begun: boolean[] = [];
  await using reading = new ReadingAhead("IPv4", (signal) => {
    begun.push(signal.aborted);
    return Promise.resolve("rules");
  });
  assertEquals(begun, [false]);
  assertEquals([await reading.result, await reading.result], ["rules", "rules"]);
});

Deno.test("ReadingAhead tells what was in the way to who asks, and to nobody else", async () => {
  const failing = () => new ReadingAhead("IPv4", () => Promise.reject(new Error("no tool")));
  await assertRejects(() => failing().result, Error, "no tool");
  // Nobody asks: an unhandled rejection would fail this test.
  await using _ = failing();
  await new Promise((resolve) => setTimeout(resolve, 0));
});

Deno.test("ReadingAhead ends what is under way, and waits for it", async () => {
  const ended: string[] = [];
  const reading = new ReadingAhead("IPv4", (signal) =>
    new Promise((_, reject) => {
      signal.addEventListener("abort", () =>
        queueMicrotask(() => {
          ended.push("tool");
          reject(signal.reason);
        }));
    }));
  await reading[Symbol.asyncDispose]();
  assertEquals(ended, ["tool"]);
});
