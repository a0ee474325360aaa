import { assertEquals } from "@std/assert";
import type { ServicePortKey } from "./service_port_name.ts";
import { ServicePortIndex } from "./service_port_index.ts";

Deno.test("ServicePortIndex.delete() leaves the others", () => {
  const socket = "10.0.0.1:80/TCP";
  const [a, b, c] = ["ns/a/TCP", "ns/b/TCP", "ns/c/TCP"] as [
    ServicePortKey,
    ServicePortKey,
    ServicePortKey,
  ];
  const index = new ServicePortIndex<string>();
  for (const key of [a, b, c, a]) index.add(socket, key);
  const seen: (readonly string[])[] = [];
  for (const key of [b, b, a, c]) {
    index.delete(socket, key);
    seen.push(index.get(socket));
  }
  assertEquals(seen, [[a, c], [a, c], [c], []]);
  assertEquals(index.has(socket), false);
});
