import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fake_clock.ts";
import { FakeNetwork } from "../../tests/support/fake_network.ts";
import { InterfaceWatcher } from "./interface_watcher.ts";

Deno.test("InterfaceWatcher looks at once and every 10 s until it is stopped", async () => {
  const clock = new FakeClock();
  const told: (readonly string[])[] = [];
  const watcher = new InterfaceWatcher({ clock, network: new FakeNetwork() }, (addresses) => {
    told.push(addresses);
  });
  assertEquals(told.length, 0);
  watcher.start();
  assertEquals(told.length, 1);
  assertEquals(told[0], [...new Set(told[0])].sort());
  await clock.advance(20_000);
  assertEquals(told.length, 3);
  watcher.stop();
  await clock.advance(20_000);
  assertEquals([told.length, clock.pendingTimers], [3, 0]);
});
