import { assertEquals, assertThrows } from "@std/assert";
import { isNodeName, nodeNameOf } from "./node_name.ts";

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

Deno.test("nodeNameOf() throws if no name is configured", () => {
  for (const hostname of ["", " \n"]) {
    assertThrows(() => nodeNameOf({ hostnameOverride: "" }, { hostname }), Error, "no host name");
  }
});

Deno.test("isNodeName() accepts the names that Kubernetes accepts", async (t) => {
  const rows: readonly [name: string, expected: boolean][] = [
    ["node-a.example.org", true],
    ["7", true],
    ["a".repeat(253), true],
    ["a".repeat(254), false],
    ["", false],
    ["(none)", false],
    ["node_a", false],
    ["Node-a", false],
    ["-a", false],
    ["a..b", false],
    ["a.", false],
    ["a b", false],
    ["a,b=c", false],
    ["a\nb", false],
  ];
  for (const [name, expected] of rows) {
    await t.step(JSON.stringify(name).slice(0, 30), () => assertEquals(isNodeName(name), expected));
  }
});
