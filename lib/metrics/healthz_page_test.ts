import { assertEquals } from "@std/assert";
import { answerHealthz } from "./healthz_page.ts";

const ROWS = [
  { path: "/healthz", body: "ok", checked: ["ping"] },
  { path: "/healthz/ping", body: "ok", checked: [] },
  { path: "/healthz?verbose", body: "[+]ping ok\nhealthz check passed\n", checked: ["ping"] },
  { path: "/healthz?exclude=ping", body: "ok", checked: [] },
  {
    path: "/healthz?verbose=1&exclude=ping",
    body: "[+]ping excluded: ok\nhealthz check passed\n",
    checked: [],
  },
  {
    path: "/healthz?verbose&exclude=no%22ne&exclude=log",
    body: '[+]ping ok\nwarn: no health check has the name "log", "no\\"ne"\nhealthz check passed\n',
    checked: ["ping"],
  },
];

for (const { path, body, checked } of ROWS) {
  Deno.test(`answerHealthz() answers ${path}`, async () => {
    const told: string[] = [];
    const answer = answerHealthz(new URL(path, "http://localhost"), (name) => told.push(name));
    assertEquals([answer.status, await answer.text()], [200, body]);
    assertEquals(answer.headers.get("content-type"), "text/plain; charset=utf-8");
    assertEquals(told, checked);
  });
}

Deno.test("answerHealthz() answers 404 for a check that there is not", () => {
  assertEquals(answerHealthz(new URL("http://localhost/healthz/other"), () => {}).status, 404);
});
