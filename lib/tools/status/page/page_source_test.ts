import { assertEquals } from "@std/assert";
import { FakeClock } from "../../../../tests/support/fakes/fake_clock.ts";
import { eventually } from "../../../../tests/support/eventually.ts";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../../tests/support/builders/status_reports.ts";
import { PageSource } from "./page_source.ts";

function stage() {
  const clock = new FakeClock();
  const asked = { brief: 0, full: 0, findings: 0 };
  let lastSync = 0;
  const report = () => {
    const at = new Date(lastSync).toISOString();
    const sync = { at, durationMs: 1, full: false, services: 1, operations: {} };
    return testStatusReport({ families: [testStatusFamily({ lastSync: sync })] });
  };
  const source = new PageSource({ clock }, {
    status: ({ brief }) => Promise.resolve((asked[brief ? "brief" : "full"]++, report())),
    changes: () => ({ entries: [], syncs: [] }),
    findings: () => Promise.resolve((asked.findings++, [])),
  });
  return { clock, asked, source, sync: () => lastSync = clock.wallNow() };
}

Deno.test("PageSource asks once for readers that come together", async () => {
  const { asked, source } = stage();
  await Promise.all([source.page("a"), source.page("b"), source.page("")]);
  assertEquals(asked, { brief: 1, full: 1, findings: 1 });
  assertEquals((await source.page("a")).model.filter, "a");
});

Deno.test("PageSource renders once for readers with one filter, and pauses between sections", async () => {
  const { clock, source } = stage();
  let pauses = 0;
  const yieldToEventLoop = clock.yieldToEventLoop.bind(clock);
  clock.yieldToEventLoop = () => (pauses++, yieldToEventLoop());
  const [first, second, other] = await Promise.all(
    ["a", "a", "b"].map((each) => source.page(each)),
  );
  assertEquals(first === second, true);
  assertEquals(other?.model.filter, "b");
  assertEquals(pauses, 2 * first!.sections.length);
  for (let filter = 0; filter < 16; filter++) await source.page(`${filter}`);
  const again = await source.page("a");
  assertEquals([again === first, again.sections], [false, first!.sections], "few are kept");
  await clock.advance(1000);
  assertEquals(await source.page("a") === again, false, "they go with the state");
});

Deno.test("PageSource does not ask again while the program has not answered", async () => {
  const { clock, source: working } = stage();
  const { report } = (await working.page("")).model;
  const answer = Promise.withResolvers<void>();
  let asked = 0;
  const source = new PageSource({ clock }, {
    status: async () => {
      asked++;
      await answer.promise;
      return report;
    },
    changes: () => ({ entries: [], syncs: [] }),
    findings: () => Promise.resolve([]),
  });
  const readers = [source.page("")];
  for (let reader = 0; reader < 5; reader++) {
    await clock.advance(2000);
    readers.push(source.page(""));
  }
  assertEquals(asked, 1);
  answer.resolve();
  await Promise.all(readers);
});

Deno.test("PageSource looks at all Services only after a sync, or after some seconds", async () => {
  const { asked, clock, source, sync } = stage();
  await source.page("");
  await clock.advance(3000);
  await source.page("");
  assertEquals(asked.full, 1, "no sync came");
  sync();
  await clock.advance(1000);
  await source.page("");
  assertEquals(asked.full, 2, "a sync came");
  await clock.advance(5000);
  await source.page("");
  assertEquals(asked.full, 3, "traffic goes on");
});

Deno.test("PageSource checks the machine every ten minutes while the page has a reader", async () => {
  const { asked, clock, source } = stage();
  await source.page("");
  await clock.advance(599_000);
  assertEquals((await source.page("")).model.doctor.findings, []);
  assertEquals(asked.findings, 1);
  await clock.advance(2000);
  await source.page("");
  assertEquals(asked.findings, 2);
});

Deno.test("PageSource gives the reason why the machine could not be checked", async () => {
  const clock = new FakeClock();
  const { source: working } = stage();
  const { report } = (await working.page("")).model;
  const source = new PageSource({ clock }, {
    status: () => Promise.resolve(report),
    changes: () => ({ entries: [], syncs: [] }),
    findings: () => Promise.reject(new Error("no such tool")),
  });
  await source.page("");
  const findings = await eventually("the findings", async () => {
    await clock.advance(1000);
    const { doctor } = (await source.page("")).model;
    return doctor.at !== undefined && doctor.findings;
  });
  assertEquals(findings[0]?.evidence, ["Error: no such tool"]);
});
