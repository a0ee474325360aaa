import { assertEquals, assertStringIncludes } from "@std/assert";
import { FakeClock } from "../../../../tests/support/fakes/fake_clock.ts";
import { parseIpAddress } from "../../../net/ip_address.ts";
import { BadQuestion } from "../../control/control_server.ts";
import { createStatusPage } from "./status_page.ts";

const LOCAL = parseIpAddress("127.0.0.1");

function createPage() {
  return createStatusPage({ clock: new FakeClock() }, {
    status: () =>
      Promise.resolve({
        version: "0.1.0",
        pid: 1,
        startedAt: "2026-01-01T00:00:00.000Z",
        phase: "serving",
        largestEventLoopDelayMs: 0,
        node: { name: "node-1" },
        hostSettings: [],
        sources: [],
        families: [],
      }),
    changes: () => ({ entries: [], syncs: [] }),
    findings: () => Promise.resolve([]),
    explain: () => Promise.reject(new BadQuestion("Cannot explain it")),
  });
}

Deno.test.each(["/", "/page.css", "/page.js", "/icon.svg", "/sections"])(
  "createStatusPage() answers GET %s for this machine only",
  async (path) => {
    const page = createPage();
    const url = `http://localhost:10249${path}`;
    const answer = await page(new Request(url), LOCAL)!;
    assertEquals(answer.status, 200);
    assertStringIncludes(answer.headers.get("content-security-policy")!, "default-src 'self'");
    assertEquals(answer.headers.get("x-frame-options"), "DENY");
    assertEquals(answer.headers.get("x-content-type-options"), "nosniff");
    assertEquals(answer.headers.get("access-control-allow-origin"), null);
    await answer.body?.cancel();
    const others = [
      page(new Request(url), parseIpAddress("192.0.2.7")),
      page(new Request(url), undefined),
      page(new Request(`http://rebound.example${path}`), LOCAL),
      page(new Request(url, { method: "POST" }), LOCAL),
      page(new Request(url, { method: "HEAD" }), LOCAL),
    ];
    assertEquals(others, others.map(() => undefined));
  },
);

Deno.test("createStatusPage() leaves other paths to the server", () => {
  const page = createPage();
  for (const path of ["/metrics", "/constructor", "/__proto__", "/page.css/"]) {
    assertEquals(page(new Request(`http://localhost${path}`), LOCAL), undefined, path);
  }
});

Deno.test("createStatusPage() names nothing outside of this machine", async () => {
  const page = createPage();
  for (const path of ["/", "/page.css", "/page.js"]) {
    const text = await (await page(new Request(`http://localhost${path}`), LOCAL)!).text();
    assertEquals(text.match(/(src|href)="(\w+:)?\/\//g), null, path);
    assertEquals(text.match(/url\(|@import/g), null, path);
  }
});

Deno.test("createStatusPage() answers with the sections as JSON", async () => {
  const answer = await createPage()(new Request("http://localhost/sections"), LOCAL)!;
  const [first] = await answer.json();
  assertEquals(first.id, "summary");
  assertStringIncludes(first.html, "serving");
});
