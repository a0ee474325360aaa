import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { RestoreBatch } from "../netfilter/iptables/restore_batch.ts";
import { WriteFigures } from "./write_figures.ts";

const SOURCE = { value: parseCidr("10.0.0.0/8") };
const STEPS = RestoreBatch.steps([
  {
    table: "filter",
    chains: [{ name: "A", rules: ["-j DROP"], owners: [undefined] }],
    removed: [],
    removedJumps: [{ from: "INPUT", rule: "-j A" }],
    jumps: [{ from: "INPUT", rule: { source: SOURCE, target: ["A"] } }],
  },
  {
    table: "nat",
    chains: [{ name: "B", rules: ["-j RETURN", "-j RETURN"], owners: [undefined, undefined] }],
    removed: ["C"],
    jumps: [],
  },
], [
  { table: "filter", name: "A", rules: ["-j DROP"] },
  { table: "nat", name: "B", rules: ["-j RETURN", "-j RETURN"] },
  { table: "nat", name: "C" },
]);

function batchOf(steps: typeof STEPS): RestoreBatch<string> {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

Deno.test("WriteFigures counts the lines, rules, chains and jumps of accepted writes", () => {
  const figures = new WriteFigures();
  assertEquals(figures.operations, {}, "zero ones are left out");
  figures.reads++;
  figures.restores++;
  const batch = batchOf(STEPS);
  figures.add(batch);
  const text = [...batch.text()].join("");
  assertEquals(figures.operations, {
    reads: 1,
    restores: 1,
    lines: text.split("\n").length - 1,
    bytes: text.length,
    chains: 2,
    removedChains: 1,
    rules: 3,
    jumps: 2,
  });
  assertEquals(figures.rules, { filter: 1, mangle: 0, nat: 2 });
});
