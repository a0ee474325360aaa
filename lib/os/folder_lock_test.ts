import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { systemClock } from "./clock.ts";
import { lockFolder } from "./folder_lock.ts";

Deno.test("lockFolder() lets one have it at a time, and leaves no file", async () => {
  const folder = await Deno.makeTempDir();
  let holders = 0;
  const work = async () => {
    using lock = await lockFolder({ clock: systemClock }, folder, { maxMs: 60_000 });
    assert(lock !== undefined);
    assertEquals(++holders, 1);
    await systemClock.sleep(5);
    holders--;
  };
  await Promise.all([work(), work(), work()]);
  assertEquals(await Array.fromAsync(Deno.readDir(folder)), []);
  await Deno.remove(folder);
});

Deno.test("lockFolder() gives up in time, when asked to, and if there is no folder", async () => {
  const folder = await Deno.makeTempDir();
  const clock = new FakeClock();
  {
    using held = await lockFolder({ clock }, folder, { maxMs: 0 });
    assert(held !== undefined);
    assertEquals(await lockFolder({ clock }, folder, { maxMs: 0 }), undefined);
    const signal = AbortSignal.abort();
    assertEquals(
      await lockFolder({ clock: systemClock }, folder, { maxMs: 60_000, signal }),
      undefined,
    );
  }
  assertEquals(await lockFolder({ clock }, `${folder}/none`, { maxMs: 0 }), undefined);
  await Deno.remove(folder);
});
