import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { RecentTexts } from "./recent_texts.ts";

Deno.test("RecentTexts.isNews() is true once an hour for each text", async () => {
  const clock = new FakeClock();
  const told = new RecentTexts({ clock });
  assertEquals([told.isNews("a"), told.isNews("a"), told.isNews("b")], [true, false, true]);
  await clock.advance(3_599_999);
  assert(!told.isNews("a"));
  await clock.advance(1);
  assertEquals([told.isNews("a"), told.isNews("a")], [true, false]);
});

Deno.test("RecentTexts.isNews() forgets the oldest of very many texts", () => {
  const told = new RecentTexts({ clock: new FakeClock() });
  for (let index = 0; index < 1001; index++) told.isNews(`text ${index}`);
  assert(!told.isNews("text 1"), "a thousand are remembered");
  assert(told.isNews("text 0"), "not one more");
});
