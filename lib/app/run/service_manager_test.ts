import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { SyncRunner } from "../../controller/sync_runner.ts";
import { mayFeedWatchdog } from "./service_manager.ts";

const DEADLINES = { runDeadlineMs: 60_000, pendingDeadlineMs: 30_000 };

Deno.test("mayFeedWatchdog() is not tripped by a quiet hour", async () => {
  const clock = new FakeClock();
  const runner = new SyncRunner({ clock }, {
    minPeriodMs: 1000,
    maxPeriodMs: 7_200_000,
    retryMs: () => 200,
    run: () => Promise.resolve("done"),
  });
  runner.start();
  runner.request();
  await clock.advance(3_600_000);
  assertEquals(mayFeedWatchdog([runner.activity], { ...DEADLINES, now: clock.now() }), true);
  await runner.stop();
});

Deno.test("mayFeedWatchdog() is tripped by a sync that never ends", async () => {
  const clock = new FakeClock();
  let end = () => {};
  const runner = new SyncRunner({ clock }, {
    minPeriodMs: 1000,
    maxPeriodMs: 7_200_000,
    retryMs: () => 200,
    run: () => new Promise((resolve) => end = () => resolve("done")),
  });
  runner.start();
  runner.request();
  await clock.advance(59_999);
  assertEquals(mayFeedWatchdog([runner.activity], { ...DEADLINES, now: clock.now() }), true);
  await clock.advance(1);
  assertEquals(mayFeedWatchdog([runner.activity], { ...DEADLINES, now: clock.now() }), false);
  end();
  await runner.stop();
});

Deno.test("mayFeedWatchdog() is tripped by a request that never gets its run", () => {
  const activity = { pendingSince: 0 };
  assertEquals(mayFeedWatchdog([{}, activity], { ...DEADLINES, now: 29_999 }), true);
  assertEquals(mayFeedWatchdog([{}, activity], { ...DEADLINES, now: 30_000 }), false);
});

Deno.test("mayFeedWatchdog() lets failing syncs live", async () => {
  const clock = new FakeClock();
  const runner = new SyncRunner({ clock }, {
    minPeriodMs: 1000,
    maxPeriodMs: 7_200_000,
    retryMs: () => 10_000,
    run: () => Promise.reject(new Error("no such luck")),
  });
  runner.start();
  runner.request();
  await clock.advance(3_600_000);
  assertEquals(mayFeedWatchdog([runner.activity], { ...DEADLINES, now: clock.now() }), true);
  await runner.stop();
});
