import { assertEquals, assertStringIncludes } from "@std/assert";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../../tests/support/builders/status_reports.ts";
import { eventually } from "../../../../tests/support/eventually.ts";
import { FakeClock } from "../../../../tests/support/fakes/fake_clock.ts";
import { parseIpAddress } from "../../../net/ip_address.ts";
import { BadQuestion } from "../../control/control_server.ts";
import { createStatusPage } from "./status_page.ts";

const LOCAL = parseIpAddress("127.0.0.1");

/** The page of a node of one family; what it asks for is counted. */
function stage(
  findings = () => Promise.resolve<[]>([]),
  answered: Promise<void> = Promise.resolve(),
) {
  const clock = new FakeClock();
  const asked = { brief: 0, full: 0, findings: 0 };
  let lastSync = 0;
  const page = createStatusPage({ clock }, {
    async status({ brief }) {
      asked[brief ? "brief" : "full"]++;
      await answered;
      const at = new Date(lastSync).toISOString();
      const sync = { at, durationMs: 1, full: false, services: 1, operations: {} };
      return testStatusReport({ families: [testStatusFamily({ lastSync: sync })] });
    },
    changes: () => ({ entries: [], syncs: [] }),
    findings: () => (asked.findings++, findings()),
    explain: () => Promise.reject(new BadQuestion("Cannot explain it")),
  });
  const get = async (path: string) =>
    await (await page(new Request(`http://localhost${path}`), LOCAL)!).text();
  return { clock, asked, page, get, sync: () => lastSync = clock.wallNow() };
}

Deno.test.each(["/", "/page.css", "/page.js", "/icon.svg", "/sections"])(
  "createStatusPage() answers GET %s for this machine only, and names no other host",
  async (path) => {
    const { page } = stage();
    const url = `http://localhost:10249${path}`;
    const answer = await page(new Request(url), LOCAL)!;
    assertEquals(answer.status, 200);
    assertStringIncludes(answer.headers.get("content-security-policy")!, "default-src 'self'");
    assertEquals(answer.headers.get("x-frame-options"), "DENY");
    assertEquals(answer.headers.get("x-content-type-options"), "nosniff");
    assertEquals(answer.headers.get("access-control-allow-origin"), null);
    const text = await answer.text();
    assertEquals(text.match(/(src|href)="(\w+:)?\/\/|url\(|@import/g), null);
    if (path === "/sections") assertEquals(JSON.parse(text)[0].id, "summary");
    const others = [
      page(new Request(url), parseIpAddress("192.0.2.7")),
      page(new Request(url), undefined),
      page(new Request(`http://rebound.example${path}`), LOCAL),
      page(new Request(url, { method: "POST" }), LOCAL),
      page(new Request(url, { method: "HEAD" }), LOCAL),
      ...["/metrics", "/constructor", "/__proto__", "/page.css/"].map((other) =>
        page(new Request(`http://localhost${other}`), LOCAL)
      ),
    ];
    assertEquals(others, others.map(() => undefined));
  },
);

Deno.test("the status page asks once for readers that come together, and renders once for each filter", async () => {
  const { clock, asked, get } = stage();
  let pauses = 0;
  const yieldToEventLoop = clock.yieldToEventLoop.bind(clock);
  clock.yieldToEventLoop = () => (pauses++, yieldToEventLoop());
  const paths = ["/sections?filter=a", "/?filter=a", "/sections?filter=b"];
  const [text = ""] = await Promise.all(paths.map(get));
  assertEquals(asked, { brief: 1, full: 1, findings: 1 });
  const { length } = JSON.parse(text);
  assertEquals(pauses, 2 * length, "other tasks run between sections");
  for (let filter = 0; filter < 16; filter++) await get(`/?filter=${filter}`);
  await get("/?filter=a");
  assertEquals(pauses, (2 + 16 + 1) * length, "few are kept");
  await clock.advance(1000);
  await get("/?filter=a");
  assertEquals([pauses, asked.brief], [(2 + 16 + 2) * length, 2], "they go with the state");
});

Deno.test("the status page does not ask again while the program has not answered", async () => {
  const answered = Promise.withResolvers<void>();
  const { clock, asked, get } = stage(undefined, answered.promise);
  const readers = [get("/")];
  for (let reader = 0; reader < 5; reader++) {
    await clock.advance(2000);
    readers.push(get("/"));
  }
  assertEquals(asked.brief, 1);
  answered.resolve();
  await Promise.all(readers);
});

Deno.test("the status page looks at all Services only after a sync, or after some seconds", async () => {
  const { asked, clock, get, sync } = stage();
  await get("/");
  await clock.advance(3000);
  await get("/");
  assertEquals(asked.full, 1, "no sync came");
  sync();
  await clock.advance(1000);
  await get("/");
  assertEquals(asked.full, 2, "a sync came");
  await clock.advance(5000);
  await get("/");
  assertEquals(asked.full, 3, "traffic goes on");
});

Deno.test("the status page checks the machine every ten minutes while it has a reader, and says why it could not", async () => {
  const { asked, clock, get } = stage(() => Promise.reject(new Error("no such tool")));
  await get("/");
  await clock.advance(599_000);
  await get("/");
  assertEquals(asked.findings, 1);
  await clock.advance(2000);
  await get("/");
  assertEquals(asked.findings, 2);
  await eventually("the reason is shown", async () => {
    await clock.advance(1000);
    return (await get("/")).includes("Error: no such tool");
  });
});
