import { assertEquals } from "@std/assert";
import { answerJson, answerNotFound, answerText, refuseWriting } from "./plain_answer.ts";

Deno.test("answerText(), answerJson() and answerNotFound() forbid browsers to guess", async () => {
  const rows = [
    [answerText("ok"), 200, "text/plain; charset=utf-8", "ok"],
    [answerJson({ a: 1 }), 200, "application/json", '{"a":1}'],
    [answerNotFound(), 404, "text/plain; charset=utf-8", "404 page not found\n"],
  ] as const;
  for (const [answer, status, type, body] of rows) {
    assertEquals(answer.status, status);
    assertEquals(answer.headers.get("x-content-type-options"), "nosniff");
    assertEquals(answer.headers.get("content-type"), type);
    assertEquals(await answer.text(), body);
  }
});

Deno.test("refuseWriting() lets GET and HEAD pass", () => {
  const refusals = ["GET", "HEAD", "POST", "DELETE"].map((method) =>
    refuseWriting(new Request("http://localhost/", { method }))
  );
  assertEquals(refusals.map((answer) => answer?.status), [undefined, undefined, 405, 405]);
  assertEquals(refusals[2]?.headers.get("allow"), "GET, HEAD");
});
