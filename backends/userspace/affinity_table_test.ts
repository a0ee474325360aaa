import { assertEquals } from "@std/assert";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import { AffinityTable } from "./affinity_table.ts";

const [A, B] = ["10.0.0.1:80", "10.0.0.2:80"] as [EndpointKey, EndpointKey];

Deno.test("AffinityTable.find() knows clients that have come since, and where they went last", () => {
  const table = new AffinityTable(10);
  table.bind("x", A, { now: 100, since: 0 });
  assertEquals([table.find("x", 99), table.find("x", 100), table.find("y", 0)], [
    A,
    undefined,
    undefined,
  ]);
  table.bind("x", B, { now: 200, since: 0 });
  assertEquals([table.find("x", 100), table.size], [B, 1] as never);
});

Deno.test("AffinityTable.bind() forgets the longest absent client when the table is full", () => {
  const table = new AffinityTable(2);
  for (const [now, client] of ["x", "y", "x", "z"].entries()) {
    table.bind(client, A, { now, since: -1 });
  }
  assertEquals(["x", "y", "z"].map((client) => table.find(client, -1)), [A, undefined, A]);
});

Deno.test("AffinityTable.bind() forgets at most 4 expired clients at a time", () => {
  const table = new AffinityTable(100);
  for (let client = 0; client < 10; client++) table.bind(`old${client}`, A, { now: 0, since: -1 });
  const sizes = [1, 2, 3, 4].map((n) => {
    table.bind(`new${n}`, A, { now: 100, since: 50 });
    return table.size;
  });
  assertEquals(sizes, [7, 4, 3, 4]);
});
