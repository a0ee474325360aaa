import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { RecentTexts } from "./recent_texts.ts";

Deno.test("RecentTexts.isNews() is true once an hour for each text", async () => {
  const clock = new FakeClock();
  const reported = new RecentTexts({ clock });
  assertEquals([reported.isNews("a"), reported.isNews("a"), reported.isNews("b")], [
    true,
    false,
    true,
  ]);
  await clock.advance(3_599_999);
  assert(!reported.isNews("a"));
  await clock.advance(1);
  assertEquals([reported.isNews("a"), reported.isNews("a")], [true, false]);
});

Deno.test("RecentTexts.isNews() forgets the oldest of very many texts", () => {
  const reported = new RecentTexts({ clock: new FakeClock() });
  for (let index = 0; index < 1001; index++) reported.isNews(`text ${index}`);
  assert(!reported.isNews("text 1"), "a thousand are remembered");
  assert(reported.isNews("text 0"), "not one more");
});
