import { assertEquals } from "@std/assert";
import { testEndpoint } from "../../../tests/support/builders/service_plans.ts";
import { SourceHash } from "./source_hash.ts";

Deno.test("SourceHash.next() looks at the endpoints once for each slot", () => {
  const endpoints = Array.from(
    { length: 1000 },
    (_, index) => testEndpoint(`10.0.${index >> 8}.${index & 255}:80`),
  );
  const balancer = new SourceHash(endpoints, undefined);
  const log = Math.log;
  let steps = 0;
  Math.log = (value) => (steps++, log(value));
  try {
    const request = { client: "192.0.2.1", now: 0 };
    const first = balancer.next(request);
    assertEquals(steps, 1000);
    for (let count = 0; count < 10; count++) assertEquals(balancer.next(request), first);
    assertEquals(steps, 1000);
  } finally {
    Math.log = log;
  }
});
