import { assertEquals, assertThrows } from "@std/assert";
import { writeText } from "./write_text.ts";

Deno.test("writeText() continues after a part was written", () => {
  const written: number[] = [];
  writeText({
    writeSync(data) {
      written.push(...data.subarray(0, 2));
      return Math.min(2, data.length);
    },
  }, "größe");
  assertEquals(new TextDecoder().decode(new Uint8Array(written)), "größe");
});

Deno.test("writeText() ends silently without a reader", () => {
  let writes = 0;
  writeText({
    writeSync() {
      if (++writes > 1) throw new Deno.errors.BrokenPipe();
      return 1;
    },
  }, "text");
  assertEquals(writes, 2);
});

Deno.test("writeText() throws all other errors", () => {
  const full = {
    writeSync() {
      throw new Error("No space left on device");
    },
  };
  assertThrows(() => writeText(full, "text"), Error, "No space left on device");
});
