import { assertEquals } from "@std/assert";
import { nodeNameOf } from "./node_name.ts";

for (
  const [hostnameOverride, hostname, expected] of [
    ["", "Node-A", "node-a"],
    ["", " node-a\n", "node-a"],
    ["Other", "node-a", "Other"],
  ] as const
) {
  Deno.test(`nodeNameOf() makes '${expected}' of '${hostnameOverride}' on '${hostname.trim()}'`, () =>
    assertEquals(nodeNameOf({ hostnameOverride }, { hostname }), expected));
}
