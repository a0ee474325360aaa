import { assertEquals } from "@std/assert";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { Quarantine } from "./quarantine.ts";

const [A, B] = ["ns/a/TCP", "ns/b/TCP"] as [ServicePortKey, ServicePortKey];

Deno.test("Quarantine holds one reason for each address, the last", () => {
  const quarantine = new Quarantine();
  quarantine.add({ key: A, address: "x", reason: "1" });
  quarantine.add({ key: A, address: "y", reason: "2" });
  quarantine.add({ key: B, reason: "3" });
  quarantine.add({ key: A, address: "x", reason: "4" });
  assertEquals([...quarantine], [
    { key: A, address: "x", reason: "4" },
    { key: A, address: "y", reason: "2" },
    { key: B, reason: "3" },
  ]);
});

Deno.test("Quarantine.delete() lifts one address, or all of a ServicePort", () => {
  const quarantine = new Quarantine();
  for (const address of ["x", "y", "z"]) quarantine.add({ key: A, address, reason: "1" });
  quarantine.delete(A, "x");
  quarantine.delete(B, "x");
  assertEquals([quarantine.has(A, "x"), quarantine.has(A, "y")], [false, true]);
  quarantine.delete(A);
  assertEquals([...quarantine], []);
});
