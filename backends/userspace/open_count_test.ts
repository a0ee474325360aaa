import { assertEquals } from "@std/assert";
import { settle } from "../../tests/support/fakes/fake_clock.ts";
import { OpenCount } from "./open_count.ts";

Deno.test("OpenCount.zero() resolves at once when nothing is open", async () => {
  await new OpenCount().zero();
});

Deno.test("OpenCount.zero() resolves for all who wait when the last is gone", async () => {
  const count = new OpenCount();
  const done: string[] = [];
  count.add();
  count.add();
  for (const name of ["a", "b"]) count.zero().then(() => done.push(name));
  count.remove();
  await settle();
  assertEquals([done, count.value], [[], 1] as never);
  count.remove();
  await settle();
  assertEquals(done, ["a", "b"]);
});
