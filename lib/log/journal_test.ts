import { assert } from "@std/assert";
import { fstatSync } from "node:fs";
import { isJournalStream } from "./journal.ts";

Deno.test("isJournalStream() compares the variable with the real standard error", () => {
  const { dev, ino } = fstatSync(2);
  assert(isJournalStream(`${dev}:${ino}`));
  assert(!isJournalStream(`${dev}:${ino + 1}`), "inherited, but led elsewhere");
  assert(!isJournalStream(undefined));
  assert(!isJournalStream(""));
});

Deno.test("isJournalStream() takes a closed standard error for no journal", () => {
  assert(
    !isJournalStream("1:2", () => {
      throw new Error("Bad file descriptor");
    }),
  );
});
