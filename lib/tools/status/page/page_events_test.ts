import { assertEquals, assertStringIncludes } from "@std/assert";
import { FakeClock } from "../../../../tests/support/fakes/fake_clock.ts";
import { MOST_STREAMS, PageEvents } from "./page_events.ts";
import type { PageSection } from "./page_document.ts";

/** Reads what comes next, while the fake time goes on. */
async function next(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  clock: FakeClock,
): Promise<string> {
  let text: string | undefined;
  const reading = reader.read().then(({ value }) => text = new TextDecoder().decode(value));
  for (let second = 0; text === undefined && second < 60; second++) await clock.advance(1000);
  await reading;
  return text!;
}

Deno.test("PageEvents sends all sections first, then those that changed", async () => {
  const clock = new FakeClock();
  let sections: readonly PageSection[] = [{ id: "a", html: "1" }, { id: "b", html: "1" }];
  const events = new PageEvents({ clock }, { sections: () => Promise.resolve(sections) });
  const reader = events.open("")!.getReader();
  assertEquals(
    await next(reader, clock),
    `event: section\ndata: {"id":"a","html":"1"}\n\nevent: section\ndata: {"id":"b","html":"1"}\n\n`,
  );
  sections = [{ id: "a", html: "1" }, { id: "b", html: "line\nline" }];
  assertEquals(
    await next(reader, clock),
    `event: section\ndata: {"id":"b","html":"line\\nline"}\n\n`,
  );
  await reader.cancel();
});

Deno.test("PageEvents says now and then that it is alive", async () => {
  const clock = new FakeClock();
  const sections = [{ id: "a", html: "1" }];
  const events = new PageEvents({ clock }, { sections: () => Promise.resolve(sections) });
  const reader = events.open("")!.getReader();
  await next(reader, clock);
  assertStringIncludes(await next(reader, clock), ": nothing has changed");
  await reader.cancel();
});

Deno.test("PageEvents bounds its streams, and a closed one makes room", async () => {
  const clock = new FakeClock();
  let asked = 0;
  const events = new PageEvents({ clock }, {
    sections: () => Promise.resolve((asked++, [])),
  });
  const open = Array.from({ length: MOST_STREAMS }, () => events.open("")!);
  assertEquals(events.open(""), undefined);
  await open[0]!.cancel();
  const again = events.open("");
  assertEquals(again !== undefined, true);
  for (const stream of [again!, ...open.slice(1)]) await stream.cancel();
  assertEquals(asked, 0, "there was no reader, so nothing was gathered");
});

Deno.test("PageEvents displaces a reader that has read nothing for a minute", async () => {
  const clock = new FakeClock();
  const sections = [{ id: "a", html: "1" }];
  const events = new PageEvents({ clock }, { sections: () => Promise.resolve(sections) });
  const open = Array.from({ length: MOST_STREAMS }, () => events.open("")!.getReader());
  const first = open.map((reader) => reader.read());
  await Promise.all(first);
  // All but one go on reading.
  const stopped = open.pop()!;
  const reading = open.map((reader) => reader.read());
  await clock.advance(14_000);
  assertEquals(events.open(""), undefined);
  await clock.advance(30_000);
  assertEquals(events.open(""), undefined);
  const more = (await Promise.all(reading), open.map((reader) => reader.read()));
  await clock.advance(20_000);
  const other = events.open("");
  assertEquals(other !== undefined, true);
  assertEquals(events.open(""), undefined, "the others go on reading");
  for (const reader of [...open, stopped]) await reader.cancel();
  await other!.cancel();
  await Promise.all(more);
});
