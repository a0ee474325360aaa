import { assertEquals } from "@std/assert";
import { DriftStage } from "../../tests/support/stages/drift_stage.ts";
import type { DriftWatch } from "../netfilter/drift_watch.ts";
import { createTableWatch } from "./drift_watch.ts";
import type { NftFigures } from "../netfilter/nft/nft_table.ts";

const TAKEN = "Another program removed or replaced chains of nftables; repairing";
const REPAIRED = "Another program removed or changed rules; repairing";
const FAILED = "Cannot check the table; trying again";

/** A table that other programs change, with its watch. */
class Stage extends DriftStage {
  /** Chains that another program removed. */
  missing: readonly string[] = [];
  changedObjects = 0;
  elements = 0;
  looks = 0;
  verifications = 0;
  isKnown = true;
  isPending = false;
  /** Of a large cluster, so that reading everything is the exception. */
  serviceCount = 10_000;
  lookError: Error | undefined;
  /** The time that a full read takes. */
  verifyMs = 0;
  readonly watch: DriftWatch;

  constructor({ periodMs = 30_000, random = 0 } = {}) {
    super();
    this.watch = createTableWatch(
      {
        ...this,
        rules: this,
        table: this,
        serviceCount: () => this.serviceCount,
        random: () => random,
      },
      { periodMs },
    );
    this.watch.start();
  }

  missingChains(): Promise<readonly string[]> {
    this.looks++;
    return this.lookError ? Promise.reject(this.lookError) : Promise.resolve(this.missing);
  }

  async verify(figures: NftFigures): Promise<void> {
    this.verifications++;
    if (this.verifyMs > 0) await this.clock.sleep(this.verifyMs);
    figures.drift = Array.from({ length: this.changedObjects }, (_, index) => ({
      kind: "chain",
      name: `chain-${index}`,
      before: "drop",
      after: "",
      owner: undefined,
    }));
    figures.elements = this.elements;
    this.missing = [];
    this.changedObjects = 0;
    this.elements = 0;
  }
}

Deno.test("DriftWatch notices missing chains within five seconds, and counts the repairs", async () => {
  await using stage = new Stage();
  stage.missing = ["services", "nat-output"];
  stage.elements = 7;
  await stage.pass(4);
  assertEquals(stage.looks, 0);
  await stage.pass(1);
  assertEquals(stage.drift, [
    { kind: "chain", found: 2, repaired: 2 },
    { kind: "rule", found: 7, repaired: 7 },
  ]);
  assertEquals(stage.messages, [TAKEN, REPAIRED]);
  assertEquals(stage.logger.lines[0]?.fields["chain"], "services");
});

Deno.test("DriftWatch reads a small table within seconds", async () => {
  await using stage = new Stage();
  stage.serviceCount = 20;
  stage.elements = 1;
  await stage.pass(14);
  assertEquals(stage.verifications, 0);
  await stage.pass(1);
  assertEquals(stage.drift, [{ kind: "rule", found: 1, repaired: 1 }]);
  stage.verifyMs = 1_000;
  await stage.pass(10 + 295);
  assertEquals(stage.verifications, 2, "what was measured counts");
});

Deno.test("DriftWatch looks as often as the sync period requires, if that is short", async () => {
  await using stage = new Stage({ periodMs: 1_000 });
  await stage.pass(4);
  assertEquals([stage.looks, stage.verifications], [4, 0]);
});

Deno.test("DriftWatch reads everything of 10,000 Services after five minutes, and reports nothing if nothing is wrong", async () => {
  await using stage = new Stage();
  stage.verifyMs = 1_000;
  await stage.pass(300);
  assertEquals(stage.verifications, 0);
  await stage.pass(6);
  assertEquals([stage.verifications, stage.drift, stage.messages], [1, [], []]);
  await stage.pass(306);
  assertEquals(stage.verifications, 2);
});

Deno.test("DriftWatch reads everything at different times on different nodes", async () => {
  await using stage = new Stage({ random: 1 });
  await stage.pass(270);
  assertEquals(stage.verifications, 0);
  await stage.pass(5);
  assertEquals(stage.verifications, 1);
});

Deno.test("DriftWatch reads less often if a read takes long, but at least once an hour", async () => {
  await using stage = new Stage();
  stage.verifyMs = 20_000;
  await stage.pass(306);
  assertEquals(stage.verifications, 1);
  await stage.pass(3_600);
  assertEquals(stage.verifications, 1);
  await stage.pass(45);
  assertEquals(stage.verifications, 2);
});

Deno.test("DriftWatch counts changed rules as those of changed chains", async () => {
  await using stage = new Stage();
  stage.changedObjects = 1;
  await stage.pass(305);
  assertEquals(stage.drift, [{ kind: "chain", found: 1, repaired: 1 }]);
  assertEquals(stage.messages, [REPAIRED]);
});

Deno.test("DriftWatch reports that it cannot look, and looks again", async () => {
  await using stage = new Stage();
  stage.lookError = new Error("nft hangs");
  await stage.pass(10);
  assertEquals([stage.looks, stage.verifications, stage.messages], [2, 0, [FAILED, FAILED]]);
  stage.lookError = undefined;
  stage.missing = ["services"];
  await stage.pass(5);
  assertEquals(stage.verifications, 1);
});

Deno.test("DriftWatch waits for a sync that is under way", async () => {
  await using stage = new Stage();
  const sync = Promise.withResolvers<void>();
  const running = stage.turns.run(() => sync.promise);
  stage.missing = ["services"];
  await stage.pass(11);
  assertEquals([stage.looks, stage.verifications], [0, 0]);
  sync.resolve();
  await running;
  await stage.pass(1);
  assertEquals(stage.verifications, 1);
});
