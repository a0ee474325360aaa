import { assertEquals } from "@std/assert";
import { Ejection } from "./ejection.ts";

const SETTINGS = { after: 3, firstMs: 1000, longestMs: 4000 };

Deno.test("Ejection.failed() ejects after failures in succession, and names the last one", () => {
  const ejection = new Ejection("a");
  const fail = (now: number, text = "refused") =>
    ejection.failed(text, { settings: SETTINGS, now });
  assertEquals([fail(0), fail(1)], [undefined, undefined]);
  ejection.succeeded();
  assertEquals([fail(2), fail(3), fail(4, "timeout")], [undefined, undefined, 1004]);
  assertEquals(ejection.reason, "3 connections in succession failed, the last one: timeout");
  // Connections that were begun before.
  assertEquals([fail(5), fail(6), fail(7), fail(8)], [undefined, undefined, undefined, undefined]);
  ejection.succeeded();
  ejection.end();
  assertEquals(ejection.reason, undefined);
});

Deno.test("Ejection.failed() doubles the time up to a bound, and begins again after good behaviour", () => {
  const ejection = new Ejection("a");
  let now = 0;
  const durations = [0, 0, 0, 0, 3999, 4000].map((pauseMs) => {
    now += pauseMs;
    let endsAt: number | undefined;
    for (let count = 0; count < 3; count++) {
      endsAt = ejection.failed("", { settings: SETTINGS, now });
    }
    const duration = endsAt! - now;
    now = endsAt!;
    ejection.end();
    return duration;
  });
  assertEquals(durations, [1000, 2000, 4000, 4000, 4000, 1000]);
});
