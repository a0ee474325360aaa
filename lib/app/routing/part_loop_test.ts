import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { PartLoop } from "./part_loop.ts";

Deno.test("PartLoop is pending while a failed sync waits to be tried again", async () => {
  let fails = true;
  const recorder = { on() {}, seen() {}, planned() {}, drained() {} };
  const { loop } = new PartLoop({
    ...{ clock: new FakeClock(), listeners: [], logger: new MemoryLogger(), random: () => 0 },
    changes: { follow: () => recorder } as never,
  }, {
    id: { controller: "bgp", family: "IPv4" },
    texts: { synced: "", failed: "", quarantined: "", released: "", item: "" },
    periodMs: [0, 1_000],
    collect: () => Promise.resolve([]),
    sync: () =>
      fails
        ? Promise.reject(new Error("no"))
        : Promise.resolve({ full: true, operations: {}, quarantined: [] }),
  });
  await loop.sync();
  assertEquals(loop.status("").pending, true);
  fails = false;
  await loop.sync();
  assertEquals(loop.status("").pending, false);
});
