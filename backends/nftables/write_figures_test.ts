import { assertEquals } from "@std/assert";
import { NftDiffStage } from "../../tests/support/stages/nft_diff_stage.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { diffTable } from "./diff.ts";
import { WriteFigures } from "./write_figures.ts";

Deno.test("WriteFigures adds up transactions, and leaves out empty ones", () => {
  const stage = new NftDiffStage();
  const figures = new WriteFigures();
  assertEquals(figures.operations, {});
  stage.layout.set(testServicePlan({ to: ["10.0.0.1:80"] }));
  const first = diffTable(stage.layout, stage.applied);
  stage.take(first);
  figures.add(first);
  stage.layout.delete(testServicePlan().key);
  const second = diffTable(stage.layout, stage.applied);
  figures.add(second);
  const text = [...first.transaction.text(), ...second.transaction.text()].join("");
  assertEquals(figures.operations, {
    lines: text.split("\n").length - 1,
    bytes: new TextEncoder().encode(text).length,
    // An address, its endpoint and that it is taken, with the number of the chain; without it again.
    elements: 4 + 3,
    chains: 1,
  });
});
