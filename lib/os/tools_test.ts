import { assertEquals, assertThrows } from "@std/assert";
import { allowRunList, toolOf, TOOLS } from "./tools.ts";

Deno.test("TOOLS names each program once, by name and not by path", () => {
  const names = TOOLS.map((tool) => tool.name);
  assertEquals(new Set(names).size, names.length);
  for (const name of names) assertEquals(/^[a-z][a-z0-9-]*$/.test(name), true, name);
});

Deno.test("toolOf() finds a program by name and by path", () => {
  assertEquals(toolOf("ip")?.debianPackage, "iproute2");
  assertEquals(toolOf("/usr/sbin/ip")?.debianPackage, "iproute2");
  assertEquals(toolOf("rm"), undefined);
});

Deno.test("allowRunList() lists every tool, then the extra ones, each once", () => {
  const list = allowRunList(["my-plugin", "ip"]).split(",");
  assertEquals(list, [...TOOLS.map((tool) => tool.name), "my-plugin"]);
});

Deno.test("allowRunList() refuses a name that would allow another program", () => {
  assertThrows(() => allowRunList(["a,bash"]), RangeError, "'a,bash'");
  assertThrows(() => allowRunList([""]), RangeError, "''");
});
