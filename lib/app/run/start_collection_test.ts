import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { StartCollection } from "./start_collection.ts";

Deno.test("StartCollection collects once, after the first complete syncs", async () => {
  const clock = new FakeClock();
  let collections = 0;
  using collection = new StartCollection({ clock }, () => void collections++);
  const ipv4 = { controller: "service", family: "IPv4" } as const;
  const ipv6 = { controller: "service", family: "IPv6" } as const;
  collection.synced(ipv4, { isComplete: false });
  await clock.advance(10_000);
  assertEquals(collections, 0);
  collection.synced(ipv4, { isComplete: true });
  await clock.advance(500);
  collection.synced(ipv6, { isComplete: true });
  await clock.advance(10_000);
  assertEquals(collections, 1);
  collection.synced(ipv4, { isComplete: true });
  await clock.advance(10_000);
  assertEquals([collections, clock.pendingTimers], [1, 0]);
});

Deno.test("StartCollection leaves no timer behind", () => {
  const clock = new FakeClock();
  {
    using collection = new StartCollection({ clock }, () => {});
    collection.synced({ controller: "service", family: "IPv4" }, { isComplete: true });
    assertEquals(clock.pendingTimers, 1);
  }
  assertEquals(clock.pendingTimers, 0);
});
