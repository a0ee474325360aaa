import { assert } from "@std/assert";
import { fstatSync } from "node:fs";
import { logsToJournal } from "./journal.ts";

function env(journalStream: string | undefined): (name: string) => string | undefined {
  return (name) => name === "JOURNAL_STREAM" ? journalStream : undefined;
}

Deno.test("logsToJournal() compares the variable with the real standard error", () => {
  const { dev, ino } = fstatSync(2);
  assert(logsToJournal(env(`${dev}:${ino}`)));
  assert(!logsToJournal(env(`${dev}:${ino + 1}`)), "inherited, but led elsewhere");
  assert(!logsToJournal(env(undefined)));
  assert(!logsToJournal(env("")));
});

Deno.test("logsToJournal() takes a closed standard error for no journal", () => {
  assert(
    !logsToJournal(env("1:2"), () => {
      throw new Error("Bad file descriptor");
    }),
  );
});
