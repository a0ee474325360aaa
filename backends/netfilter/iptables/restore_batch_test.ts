import { assert, assertEquals } from "@std/assert";
import { RestoreBatch, restoreLines, type RestorePart } from "./restore_batch.ts";

function batchOf(parts: readonly RestorePart[]): RestoreBatch {
  const steps = RestoreBatch.steps(parts);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

function chain(name: string, rules: readonly string[]) {
  return { name, rules };
}

const BATCH = batchOf([
  { table: "filter", chains: [chain("A", ["-j DROP"])], removed: [], jumps: [] },
  {
    table: "nat",
    chains: [chain("B", ["-j RETURN", "-j C"]), chain("C", [])],
    removed: ["D"],
    removedJumps: [{ from: "OUTPUT", rule: "-j D" }],
    jumps: [{ from: "OUTPUT", rule: { target: ["B"] } }],
  },
]);

Deno.test("RestoreBatch creates chains before rules, and deletes unreferenced ones", () => {
  assertEquals(
    [...BATCH.text()].join(""),
    [
      ...["*filter", ":A - [0:0]", "-A A -j DROP", "COMMIT"],
      ...["*nat", ":B - [0:0]", ":C - [0:0]", ":D - [0:0]", "-A B -j RETURN", "-A B -j C"],
      ...["-D OUTPUT -j D", "-I OUTPUT -j B", "-X D", "COMMIT", ""],
    ].join("\n"),
  );
});

Deno.test("RestoreBatch of nothing is empty", () => {
  const batch = batchOf([]);
  assertEquals([batch.isEmpty, [...batch.text()]], [true, []]);
});

Deno.test("RestoreBatch gives its text in pieces, none of which is large", () => {
  const rules = Array.from(
    { length: 10_000 },
    (_, index) => `-d 10.0.${index >> 8}.${index & 255}`,
  );
  const pieces = [
    ...batchOf([{ table: "nat", chains: [chain("A", rules)], removed: [], jumps: [] }])
      .text(),
  ];
  assert(pieces.length >= 3 && pieces.every(({ length }) => length < 70_000), `${pieces.length}`);
});

Deno.test("restoreLines() adds rules to chains of any prefix, and leaves out a table without changes", () => {
  assertEquals(
    restoreLines([
      { table: "nat" },
      {
        table: "raw",
        chains: [{ name: "OWN-A", rules: ["-j RETURN"] }],
        appended: [{ from: "OWN-B", rule: "-j DROP" }],
        removedJumps: [{ from: "OWN-B", rule: "-j OWN-C" }],
      },
    ]),
    [
      "*raw",
      ":OWN-A - [0:0]",
      "-A OWN-A -j RETURN",
      "-A OWN-B -j DROP",
      "-D OWN-B -j OWN-C",
      "COMMIT",
    ],
  );
});
