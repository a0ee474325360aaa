import { assert } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { RecentTexts } from "./recent_texts.ts";

Deno.test("RecentTexts.isNews() forgets the oldest of very many texts", () => {
  const reported = new RecentTexts({ clock: new FakeClock() });
  for (let index = 0; index < 1001; index++) reported.isNews(`text ${index}`);
  assert(!reported.isNews("text 1"), "a thousand are remembered");
  assert(reported.isNews("text 0"), "not one more");
});
