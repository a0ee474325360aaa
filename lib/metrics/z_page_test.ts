import { assertEquals } from "@std/assert";
import { answerZPage, type ZPage } from "./metrics_server.ts";

const PAGE: ZPage = { kind: "Flagz", fields: { flags: { v: "2" } }, lines: ["v=2"] };

const TEXT = "text/plain; charset=utf-8";
const NAMED = "g=config.k8s.io;v=v1beta1;as=Flagz";

/** Accept headers and the answer to each: its media type, or 406. */
const ROWS: readonly (readonly [accept: string | undefined, expect: string | 406])[] = [
  [undefined, TEXT],
  ["*/*", TEXT],
  ["text/*", TEXT],
  ["text/html, text/plain;q=0.5", TEXT],
  [`application/json;${NAMED}`, "application/json"],
  [`application/yaml;${NAMED}`, "application/yaml"],
  [`Application/JSON; as=Flagz; v=v1alpha1; g=config.k8s.io`, "application/json"],
  [`application/json;${NAMED};q=0, text/plain`, TEXT],
  [`application/cbor;${NAMED}, application/json;${NAMED}`, "application/json"],
  ["application/json", 406],
  ["application/json;g=config.k8s.io;v=v1beta1;as=Statusz", 406],
  ["application/json;g=config.k8s.io;v=v2;as=Flagz", 406],
  ["application/json;g=apps;v=v1beta1;as=Flagz", 406],
  ["text/html", 406],
  ["*/*;q=0.0", 406],
];

for (const [accept, expect] of ROWS) {
  Deno.test(`answerZPage() answers 'Accept: ${accept ?? ""}' with ${expect}`, () => {
    const headers: HeadersInit = accept === undefined ? {} : { accept };
    const answer = answerZPage(new Request("http://localhost/flagz", { headers }), PAGE);
    const type = answer.headers.get("content-type");
    assertEquals(answer.status === 200 ? type : answer.status, expect);
  });
}
