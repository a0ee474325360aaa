import { assertEquals } from "@std/assert";
import { FakeClock, settle } from "../../tests/support/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/memory_logger.ts";
import { OneAtATime } from "../netfilter/one_at_a_time.ts";
import { IptablesError } from "../netfilter/restore_error.ts";
import type { DriftFigures } from "../netfilter/drift_figures.ts";
import { DriftWatch } from "./drift_watch.ts";
import type { WriteFigures } from "./write_figures.ts";

/** A machine on which tables are flushed, and what the watch does about it. */
class Stage implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly drift: DriftFigures[] = [];
  readonly flushed = new Set<string>();
  readonly turns = new OneAtATime();
  looks = 0;
  verifications = 0;
  isKnown = true;
  lookError: Error | undefined;
  verifyError: Error | undefined;
  readonly watch: DriftWatch;

  constructor() {
    const runner = {
      hasRules: (table: string) => {
        this.looks++;
        if (this.lookError) return Promise.reject(this.lookError);
        return Promise.resolve(!this.flushed.has(table));
      },
    };
    const { clock, logger, turns } = this;
    const onDrift = (figures: DriftFigures) => void this.drift.push(figures);
    this.watch = new DriftWatch(
      { clock, logger, turns, runner, rules: this, random: () => 0, onDrift },
      { periodMs: 30_000, tables: ["mangle", "filter", "nat"] },
    );
    this.watch.start();
  }

  verify(figures: WriteFigures): Promise<void> {
    this.verifications++;
    if (this.verifyError) return Promise.reject(this.verifyError);
    figures.chains = this.flushed.size * 3;
    figures.jumps = this.flushed.size;
    this.flushed.clear();
    return Promise.resolve();
  }

  async pass(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second++) {
      await this.clock.advance(1_000);
      await settle();
    }
  }

  get messages(): string[] {
    return this.logger.lines.filter(({ level }) => level === "warn").map(({ message }) => message);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.watch.stop();
    assertEquals(this.clock.pendingTimers, 0);
  }
}

for (const table of ["mangle", "filter", "nat"]) {
  Deno.test(`DriftWatch sees that ${table} alone was flushed, and counts what it repairs`, async () => {
    await using stage = new Stage();
    stage.flushed.add(table);
    await stage.pass(11);
    assertEquals(stage.verifications, 1);
    assertEquals(stage.drift, [
      { kind: "chain", found: 3, repaired: 3 },
      { kind: "rule", found: 1, repaired: 1 },
    ]);
    assertEquals(stage.messages, [
      "Somebody has flushed a table of iptables",
      "Rules were missing or changed; they are repaired",
    ]);
    stage.flushed.add(table);
    await stage.pass(2);
    assertEquals(stage.verifications, 2, "who flushes once often goes on");
  });
}

Deno.test("DriftWatch reads everything after five minutes, and says nothing where all is well", async () => {
  await using stage = new Stage();
  await stage.pass(290);
  assertEquals(stage.verifications, 0);
  await stage.pass(20);
  assertEquals([stage.verifications, stage.drift, stage.messages], [1, [], []]);
});

Deno.test("DriftWatch takes a table that cannot be looked at for whole", async () => {
  await using stage = new Stage();
  stage.lookError = new IptablesError("locked", { kind: "locked", reason: "locked" });
  await stage.pass(30);
  assertEquals([stage.looks > 3, stage.verifications, stage.messages], [true, 0, []]);
});

Deno.test("DriftWatch tries a repair again that failed, though nothing is known then", async () => {
  await using stage = new Stage();
  stage.flushed.add("nat");
  stage.verifyError = new Error("no lock");
  await stage.pass(10);
  assertEquals(stage.verifications, 1);
  stage.isKnown = false;
  await stage.pass(1);
  assertEquals(stage.verifications, 2);
  stage.verifyError = undefined;
  await stage.pass(1);
  assertEquals([stage.verifications, stage.drift.length], [3, 2]);
});

Deno.test("DriftWatch leaves it to the first sync to compare", async () => {
  await using stage = new Stage();
  stage.isKnown = false;
  stage.flushed.add("nat");
  await stage.pass(600);
  assertEquals([stage.looks, stage.verifications], [0, 0]);
});

Deno.test("DriftWatch waits for a sync that is under way", async () => {
  await using stage = new Stage();
  const sync = Promise.withResolvers<void>();
  const running = stage.turns.run(() => sync.promise);
  stage.flushed.add("nat");
  await stage.pass(11);
  assertEquals(stage.verifications, 0);
  sync.resolve();
  await running;
  await stage.pass(1);
  assertEquals(stage.verifications, 1);
});

Deno.test("DriftWatch does not take the wait for a sync for the cost of reading", async () => {
  await using stage = new Stage();
  const sync = Promise.withResolvers<void>();
  const running = stage.turns.run(() => sync.promise);
  stage.flushed.add("nat");
  await stage.pass(60);
  sync.resolve();
  await running;
  await stage.pass(1);
  assertEquals(stage.verifications, 1);
  await stage.pass(310);
  assertEquals(stage.verifications, 2, "after five minutes, not after an hour");
});

Deno.test("DriftWatch compares everything once, when it is asked to", async () => {
  await using stage = new Stage();
  stage.watch.recheck();
  await stage.pass(10);
  assertEquals(stage.verifications, 1);
  await stage.pass(100);
  assertEquals(stage.verifications, 1);
});
