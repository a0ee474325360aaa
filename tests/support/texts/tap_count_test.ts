import { assertEquals } from "@std/assert";
import { TapCount } from "./tap_count.ts";

const STREAM = `TAP version 14
# ./a_test.ts
ok 1 - one
    # Subtest: step
    ok 1 - of two
    not ok 2 - of two
    1..2
not ok 2 - two
  ---
  {"message":"ok 1 - not a line of its own"}
  ...
ok 3 - three # SKIP
1..3
`;

Deno.test("TapCount counts tests, not their steps, however the stream is cut", () => {
  const bytes = new TextEncoder().encode(STREAM);
  for (const size of [1, 7, bytes.length]) {
    const count = new TapCount();
    for (let at = 0; at < bytes.length; at += size) count.take(bytes.subarray(at, at + size));
    const { passed, failed, ignored } = count;
    assertEquals({ passed, failed, ignored }, { passed: 1, failed: 1, ignored: 1 });
  }
});
