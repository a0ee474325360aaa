import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { EventLoopMonitor } from "./service_manager.ts";

async function withMonitor(
  run: (monitor: EventLoopMonitor, clock: FakeClock) => Promise<void>,
): Promise<void> {
  const clock = new FakeClock();
  const monitor = new EventLoopMonitor({ clock });
  const abort = new AbortController();
  const running = monitor.run(abort.signal);
  await run(monitor, clock);
  abort.abort();
  await running;
}

Deno.test("EventLoopMonitor sees how late its timer fires while there is work", () =>
  withMonitor(async (monitor, clock) => {
    monitor.expectWork();
    await clock.advance(100);
    assertEquals(monitor.largestMs, 0);
    clock.stall(150);
    await clock.advance(20);
    assertEquals(monitor.largestMs > 100, true, `${monitor.largestMs} ms`);
  }));

Deno.test("EventLoopMonitor has no timer while there is no work, and begins again with it", () =>
  withMonitor(async (monitor, clock) => {
    assertEquals(clock.pendingTimers, 0);
    monitor.expectWork();
    await clock.advance(20);
    assertEquals(clock.pendingTimers, 1);
    await clock.advance(10_000);
    assertEquals(clock.pendingTimers, 0);
    monitor.expectWork();
    await clock.advance(20);
    assertEquals(clock.pendingTimers, 1);
  }));
