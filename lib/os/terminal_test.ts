import { assertEquals } from "@std/assert";
import { frameText, keysOf } from "./terminal.ts";

Deno.test("keysOf() names keys and letters, and leaves out everything else", () => {
  assertEquals(keysOf("q\x1b[A\x1bOB\x1b[5~/\r\x7f"), [
    ...["q", "up", "down", "page up", "/", "enter", "backspace"],
  ]);
  assertEquals(keysOf("\x1b"), ["escape"]);
  assertEquals(keysOf("\x1b[15~\x00\u00e4"), []);
});

Deno.test("frameText() overwrites the previous frame and erases only its rest", () => {
  assertEquals(
    frameText(["a", "b"]),
    "\x1b[?2026h\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J\x1b[?2026l",
  );
});
