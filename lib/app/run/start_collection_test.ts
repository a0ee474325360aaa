import { syncedEvent } from "../../../tests/support/builders/sync_events.ts";
import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { StartCollection } from "./start_collection.ts";

Deno.test("StartCollection collects once, after the first complete syncs", async () => {
  const clock = new FakeClock();
  let collections = 0;
  using collection = new StartCollection({ clock }, () => void collections++);
  const ipv4 = { controller: "service", family: "IPv4" } as const;
  const ipv6 = { controller: "service", family: "IPv6" } as const;
  collection.on(syncedEvent(ipv4, false));
  await clock.advance(10_000);
  assertEquals(collections, 0);
  collection.on(syncedEvent(ipv4, true));
  await clock.advance(500);
  collection.on(syncedEvent(ipv6, true));
  await clock.advance(10_000);
  assertEquals(collections, 1);
  collection.on(syncedEvent(ipv4, true));
  await clock.advance(10_000);
  assertEquals([collections, clock.pendingTimers], [1, 0]);
});

Deno.test("StartCollection leaves no timer behind", () => {
  const clock = new FakeClock();
  {
    using collection = new StartCollection({ clock }, () => {});
    collection.on(syncedEvent({ controller: "service", family: "IPv4" }, true));
    assertEquals(clock.pendingTimers, 1);
  }
  assertEquals(clock.pendingTimers, 0);
});
