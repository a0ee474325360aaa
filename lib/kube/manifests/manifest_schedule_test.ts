import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fake_clock.ts";
import { ManifestSchedule, type Wake } from "./manifest_schedule.ts";

interface Waiting {
  readonly clock: FakeClock;
  readonly schedule: ManifestSchedule;
  readonly controller: AbortController;
  /** What ended the wait, and when. */
  readonly wakes: (readonly [Wake, number])[];
}

function startWaiting(): Waiting {
  const clock = new FakeClock();
  const schedule = new ManifestSchedule({ clock });
  const controller = new AbortController();
  const wakes: (readonly [Wake, number])[] = [];
  const waitAgain = async () => {
    for (;;) {
      const wake = await schedule.wait(controller.signal);
      wakes.push([wake, clock.now()]);
      if (wake === "aborted") return;
    }
  };
  void waitAgain();
  return { clock, schedule, controller, wakes };
}

Deno.test("wait() lets 50 ms of quiet pass after a change", async () => {
  const { clock, schedule, wakes } = startWaiting();
  schedule.noteChange();
  await clock.advance(40);
  schedule.noteChange();
  await clock.advance(49);
  assertEquals(wakes, []);
  await clock.advance(500);
  assertEquals(wakes, [["changed", 90]]);
});

Deno.test("wait() reads changes that never stop once a second", async () => {
  const { clock, schedule, wakes } = startWaiting();
  for (let turn = 0; turn < 100; turn++) {
    schedule.noteChange();
    await clock.advance(25);
  }
  assertEquals(wakes.map(([, at]) => at), [1000, 2000]);
});

Deno.test("wait() ends when a look at everything is due, at the earliest time asked for", async () => {
  const { clock, schedule, wakes } = startWaiting();
  schedule.lookAgainIn(10_000);
  schedule.lookAgainIn(300);
  schedule.lookAgainIn(5_000);
  await clock.advance(20_000);
  assertEquals(wakes, [["due", 300]]);
});

Deno.test("wait() keeps the look at everything when a change comes first", async () => {
  const { clock, schedule, wakes } = startWaiting();
  schedule.lookAgainIn(1_000);
  schedule.noteChange();
  await clock.advance(2_000);
  assertEquals(wakes, [["changed", 50], ["due", 1_000]]);
});

Deno.test("wait() takes up what was noted while nobody waited", async () => {
  const clock = new FakeClock();
  const schedule = new ManifestSchedule({ clock });
  schedule.noteChange();
  await clock.advance(1_000);
  const wake = schedule.wait(new AbortController().signal);
  await clock.advance(0);
  assertEquals(await wake, "changed");
});

Deno.test("wait() ends at once when aborted, and leaves no timer", async () => {
  const { clock, schedule, controller, wakes } = startWaiting();
  schedule.lookAgainIn(1_000);
  controller.abort();
  await clock.advance(0);
  assertEquals(wakes, [["aborted", 0]]);
  assertEquals(clock.pendingTimers, 0);
  assertEquals(await schedule.wait(controller.signal), "aborted");
});
