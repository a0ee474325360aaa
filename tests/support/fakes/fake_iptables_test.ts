import { assertEquals, assertThrows } from "@std/assert";
import { FakeIptables } from "./fake_iptables.ts";

function restore(tool: FakeIptables, ...lines: readonly string[]): void {
  tool.restore(`${lines.join("\n")}\n`);
}

Deno.test("FakeIptables makes, fills, empties and removes chains", () => {
  const tool = new FakeIptables();
  restore(tool, "*nat", ":A - [0:0]", ":B - [0:0]", "-A A -j B", "-I PREROUTING -j A", "COMMIT");
  assertEquals(tool.table("nat").get("PREROUTING"), ["-j A"]);
  restore(tool, "*nat", ":A - [0:0]", ":B - [0:0]", "-X B", "COMMIT");
  assertEquals(tool.table("nat").get("A"), []);
  assertEquals(tool.table("nat").has("B"), false);
});

Deno.test("FakeIptables applies a table as a whole, and the one before a failure", () => {
  const tool = new FakeIptables();
  assertThrows(
    () => restore(tool, "*filter", ":A - [0:0]", "COMMIT", "*nat", ":A - [0:0]", "-X B", "COMMIT"),
    Error,
    "line 6 failed",
  );
  assertEquals([tool.table("filter").has("A"), tool.table("nat").has("A")], [true, false]);
});

Deno.test("FakeIptables refuses the same input as the real program", () => {
  const refused = [
    ["-A A -j DROP"],
    [":A - [0:0]", "-A A -j NOWHERE"],
    [":A - [0:0]", "-A A -j DROP", "-X A"],
    [":A - [0:0]", ":B - [0:0]", "-A A -j B", "-X B"],
    [`:${"A".repeat(29)} - [0:0]`],
  ];
  for (const lines of refused) {
    assertThrows(() => restore(new FakeIptables(), "*nat", ...lines, "COMMIT"), Error);
  }
  assertThrows(() => restore(new FakeIptables(), "*nat"), Error, "COMMIT expected");
});

Deno.test("FakeIptables prints its rules in a form that it accepts again", () => {
  const tool = new FakeIptables();
  restore(tool, "*nat", ":A - [0:0]", "-A A -j DROP", "-I OUTPUT -j A", "COMMIT");
  const text = tool.save();
  const copy = new FakeIptables();
  copy.restore(text.replaceAll(/^:.* ACCEPT .*\n/gm, ""));
  assertEquals(copy.save(), text);
});

Deno.test("FakeIptables deletes one rule of its kind, and flushes with or without chains", () => {
  const tool = new FakeIptables();
  restore(tool, "*nat", ":A - [0:0]", "-A A -j DROP", "-A A -j DROP", "-D A -j DROP", "COMMIT");
  assertEquals(tool.table("nat").get("A"), ["-j DROP"]);
  assertThrows(() => restore(tool, "*nat", "-D A -j RETURN", "COMMIT"), Error, "line 2 failed");
  tool.flush("nat", { keepChains: true });
  assertEquals(tool.table("nat").get("A"), []);
  tool.flush("nat");
  assertEquals(tool.table("nat").has("A"), false);
});
