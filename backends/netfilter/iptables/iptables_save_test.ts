import { assertEquals, assertThrows } from "@std/assert";
import { IptablesSave, parseSaveLine, type SavedTables } from "./iptables_save.ts";

function read(...lines: readonly string[]): SavedTables {
  const save = new IptablesSave();
  for (const line of lines) save.take(line);
  return save.end();
}

for (
  const [what, lines] of [
    ["breaks off", ["*nat", ":A - [0:0]"]],
    ["begins in the middle", ["-A INPUT -j DROP"]],
    ["has a table inside of another", ["*nat", "*filter"]],
    ["has a rule of no chain", ["*nat", "-A A -j DROP", "COMMIT"]],
    ["breaks off in a comment", ["*raw", ":A - [0:0]", '-A A -m comment --comment "two', "COMMIT"]],
    ["has noise", ["*nat", "%&/(", "COMMIT"]],
    ["cannot be shown", ["# Table `nat' is incompatible, use 'nft' tool."]],
  ] as const
) {
  Deno.test(`IptablesSave refuses a dump that ${what}`, () => {
    assertThrows(() => read(...lines), SyntaxError);
  });
}

Deno.test("IptablesSave reads comments of several lines, whatever these look like", () => {
  const rule = (text: string) => `-m comment --comment "${text}" -j ACCEPT`;
  const texts = ["two\nlines", 'a \\" quote\n*filter\nCOMMIT\n\n# x', "\\\\"];
  const dump = ["*nat", ":A - [0:0]", ...texts.map((text) => `-A A ${rule(text)}`), "COMMIT"];
  assertEquals(read(...dump.join("\n").split("\n")).nat.chains.get("A"), texts.map(rule));
});

Deno.test("IptablesSave gives up quotes that do not end, long before the end of the dump", () => {
  const save = new IptablesSave();
  for (const line of ["*raw", ":A - [0:0]", '-A A -m comment --comment "']) save.take(line);
  let lines = 0;
  assertThrows(
    () => {
      for (; lines < 100_000; lines++) save.take("");
    },
    SyntaxError,
    "whose quotes do not end",
  );
  assertEquals(lines < 10_000, true);
});

Deno.test("IptablesSave leaves out a table that cannot be shown, if one may lack", () => {
  const save = new IptablesSave();
  for (const line of ["# Table `nat' is incompatible, use 'nft' tool.", "*filter", "COMMIT"]) {
    save.take(line);
  }
  const { nat, filter } = save.end({ mayLack: true });
  assertEquals([nat.isUnreadable, filter.isUnreadable], [true, undefined]);
});

Deno.test("IptablesSave skips a foreign table that only nft can show", () => {
  assertEquals(read("# Table `security' is incompatible, use 'nft' tool.").nat.chains.size, 0);
});

Deno.test("IptablesSave cuts a long line that it complains of", () => {
  const error = assertThrows(() => read("x".repeat(10_000)), SyntaxError);
  assertEquals(error.message.length < 200, true);
});

Deno.test("parseSaveLine() reads every line of a dump of any table", () => {
  const lines = ["*raw", ":A - [0:0]", ":INPUT DROP [1:2]", "[3:4] -A A -j B", "-A A", "COMMIT"];
  assertEquals([...lines, "# note", "", "noise", "-N A"].map(parseSaveLine), [
    { kind: "table", table: "raw" },
    { kind: "chain", chain: "A", isBuiltIn: false },
    { kind: "chain", chain: "INPUT", isBuiltIn: true },
    { kind: "rule", chain: "A", rule: "-j B", packets: 3 },
    { kind: "rule", chain: "A", rule: "" },
    { kind: "commit" },
    ...Array.from({ length: 4 }, () => undefined),
  ]);
});
