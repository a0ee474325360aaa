import { assertEquals } from "@std/assert";
import { gzipAnswer } from "./gzip_answer.ts";

const TEXT = "kubeproxy_sync_proxy_rules_duration_seconds_count 1\n".repeat(10_000);

function answer(acceptEncoding: string | undefined, body: string | Blob = TEXT): Response {
  const headers = { ...(acceptEncoding !== undefined && { "accept-encoding": acceptEncoding }) };
  const request = new Request("http://127.0.0.1/metrics", { headers });
  return gzipAnswer(
    request,
    new Response(body, { status: 203, headers: { "content-type": "text/plain" } }),
  );
}

for (const accept of ["gzip", "deflate, GZIP;q=0.5", "identity;q=0.1, *", "x-gzip"]) {
  Deno.test(`gzipAnswer() compresses for a client that takes '${accept}'`, async () => {
    for (const body of [TEXT, new Blob([TEXT.slice(0, 70_000), TEXT.slice(70_000)])]) {
      const response = answer(accept, body);
      assertEquals(response.status, 203);
      assertEquals(response.headers.get("content-encoding"), "gzip");
      assertEquals(response.headers.get("content-type"), "text/plain");
      const compressed = await response.blob();
      assertEquals(compressed.size < TEXT.length / 10, true, `${compressed.size} bytes`);
      const plain = compressed.stream().pipeThrough(new DecompressionStream("gzip"));
      assertEquals(await new Response(plain).text(), TEXT);
    }
  });
}

for (const accept of [undefined, "", "identity", "gzip;q=0, deflate", "*;q=0", "gzip;q=x"]) {
  Deno.test(`gzipAnswer() leaves the answer plain for a client that takes '${accept}'`, async () => {
    const response = answer(accept);
    assertEquals(response.headers.get("content-encoding"), null);
    assertEquals([response.status, response.headers.get("vary")], [203, "accept-encoding"]);
    assertEquals(await response.text(), TEXT);
  });
}
