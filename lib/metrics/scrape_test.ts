import { assertEquals } from "@std/assert";
import { FakeClock, settle } from "../../tests/support/fakes/fake_clock.ts";
import { type MetricsAnswer, Scrape, SharedScrape } from "./scrape.ts";

const TEXT = "kubeproxy_sync_proxy_rules_duration_seconds_count 1\n".repeat(10_000);

function answer(
  acceptEncoding: string | undefined,
  body: MetricsAnswer["body"] = TEXT,
): Promise<Response> {
  const headers = new Headers({
    ...(acceptEncoding !== undefined && { "accept-encoding": acceptEncoding }),
  });
  return new Scrape({ contentType: "text/plain", body }).answer({ headers });
}

for (const accept of ["gzip", "deflate, GZIP;q=0.5", "identity;q=0.1, *", "x-gzip"]) {
  Deno.test(`Scrape.answer() compresses for a client that takes '${accept}'`, async () => {
    const bytes = new TextEncoder().encode(TEXT);
    for (const body of [TEXT, [bytes.slice(0, 70_000), bytes.slice(70_000)]]) {
      const response = await answer(accept, body);
      assertEquals(response.headers.get("content-encoding"), "gzip");
      assertEquals(response.headers.get("content-type"), "text/plain");
      const compressed = await response.blob();
      assertEquals(compressed.size < TEXT.length / 10, true, `${compressed.size} bytes`);
      assertEquals(response.headers.get("content-length"), String(compressed.size));
      const plain = compressed.stream().pipeThrough(new DecompressionStream("gzip"));
      assertEquals(await new Response(plain).text(), TEXT);
    }
  });
}

for (const accept of [undefined, "", "identity", "gzip;q=0, deflate", "*;q=0", "gzip;q=x"]) {
  Deno.test(`Scrape.answer() leaves the text plain for a client that takes '${accept}'`, async () => {
    const response = await answer(accept);
    assertEquals(response.headers.get("content-encoding"), null);
    assertEquals(response.headers.get("vary"), "accept-encoding");
    assertEquals(response.headers.get("content-length"), String(TEXT.length));
    assertEquals(await response.text(), TEXT);
  });
}

Deno.test("SharedScrape makes one text for all simultaneous requests", async () => {
  let made = 0;
  const { promise, resolve } = Promise.withResolvers<void>();
  const shared = new SharedScrape({ clock: new FakeClock() }, async () => {
    made++;
    await promise;
    return { contentType: "text/plain", body: "" };
  });
  const asked = [shared.get(), shared.get()];
  resolve();
  assertEquals(await asked[0], await asked[1]);
  await shared.get();
  assertEquals(made, 2);
});

Deno.test("SharedScrape spends a fifth of the time on texts, however many ask", async () => {
  const clock = new FakeClock();
  let made = 0;
  const shared = new SharedScrape({ clock }, async () => {
    made++;
    await clock.sleep(100);
    return { contentType: "text/plain", body: "" };
  });
  for (let passed = 0; passed < 60_000; passed += 10) {
    void shared.get();
    await settle();
    await clock.advance(10);
  }
  await clock.advance(100);
  // 60 s, of which a fifth, and one second in advance: at 100 ms each.
  assertEquals(made >= 120 && made <= 131, true, `${made} texts`);
});

Deno.test("SharedScrape makes the text again after a failure", async () => {
  const clock = new FakeClock();
  let made = 0;
  const shared = new SharedScrape({ clock }, async () => {
    if (made++ > 0) return { contentType: "text/plain", body: "" };
    await clock.sleep(60_000);
    throw new Error("a fault");
  });
  const failed = shared.get().catch((error) => error.message);
  await clock.advance(60_000);
  assertEquals(await failed, "a fault");
  await shared.get();
  assertEquals(made, 2);
});
