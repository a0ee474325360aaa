import { assertEquals } from "@std/assert";
import { pressed, unanswered, type WatchModel } from "./watch_model.ts";

const MODEL: WatchModel = { socket: "/run/a.sock", filter: "", scrolledBy: 0 };

function after(keys: readonly string[], model = MODEL): WatchModel {
  return keys.reduce((before, key) => pressed(before, key).model, model);
}

Deno.test("pressed() ends at q, but not while a filter is typed", () => {
  assertEquals(pressed(MODEL, "q").ends, true);
  const typing = after(["/", "q"]);
  assertEquals([typing.typed, pressed(typing, "q").ends], ["q", false]);
});

Deno.test("pressed() takes a typed filter at Enter, drops it at Escape, and corrects", () => {
  assertEquals(after(["/", "w", "x", "backspace", "e", "enter"]), { ...MODEL, filter: "we" });
  assertEquals(after(["/", "w", "escape"]), MODEL);
  assertEquals(after(["escape"], { ...MODEL, filter: "web", scrolledBy: 3 }), MODEL);
  assertEquals(after(["/", "up", "w"]).typed, "w");
});

Deno.test("pressed() scrolls no further than the newest", () => {
  assertEquals(after(["up", "up", "down"]).scrolledBy, 1);
  assertEquals(after(["up", "page down"]).scrolledBy, 0);
  assertEquals(after(["home", "end"]).scrolledBy, 0);
});

Deno.test("unanswered() counts from the first time", () => {
  const first = unanswered(MODEL, { reason: "a", at: 5 });
  assertEquals(unanswered(first, { reason: "b", at: 9 }).lost, { since: 5, reason: "b" });
});
