import { assertEquals } from "@std/assert";
import type { LogFields } from "../../lib/log/logger.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { FakeClock, settle } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import {
  type DriftFigures,
  type DriftFound,
  type DriftSubject,
  DriftWatch,
} from "./drift_watch.ts";
import { VerificationSchedule } from "./verification_schedule.ts";

const LOST = "Another program was here";
const FAILED = "Cannot look";
const REPAIRED = "Another program removed or changed rules; repairing";
const NOTHING: DriftFound = { counts: { chain: 0, rule: 0 }, fields: {} };

/** Rules that are looked at every ten seconds, and compared every five minutes. */
class Stage implements AsyncDisposable, DriftSubject {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly turns = new OneAtATime();
  /** The reported figures. */
  readonly drift: DriftFigures[] = [];
  readonly onDrift = (figures: DriftFigures): void => void this.drift.push(figures);
  isKnown = true;
  isPending = false;
  pauseMs = 10_000;
  /** The canary that a flush removes; set if it is missing. */
  lost: LogFields | undefined;
  found = NOTHING;
  looks = 0;
  verifications = 0;
  lookError: Error | undefined;
  verifyError: Error | undefined;
  /** The time that a full read takes. */
  verifyMs = 0;
  readonly watch: DriftWatch;

  constructor() {
    const schedule = new VerificationSchedule(() => 0);
    schedule.expect(0, 0);
    this.watch = new DriftWatch({ ...this, schedule, subject: this }, {
      lost: LOST,
      changed: REPAIRED,
      failed: FAILED,
    });
    this.watch.start();
  }

  look(): Promise<LogFields | undefined> {
    this.looks++;
    return this.lookError ? Promise.reject(this.lookError) : Promise.resolve(this.lost);
  }

  async verify(): Promise<DriftFound> {
    this.verifications++;
    if (this.verifyError) throw this.verifyError;
    if (this.verifyMs > 0) await this.clock.sleep(this.verifyMs);
    const { found } = this;
    this.lost = undefined;
    this.found = NOTHING;
    return found;
  }

  /** Lets time go by, a second at a time. */
  async pass(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second++) {
      await this.clock.advance(1_000);
      await settle();
    }
  }

  /** Warnings, in order. */
  get messages(): string[] {
    return this.logger.lines.filter(({ level }) => level === "warn").map(({ message }) => message);
  }

  /** Stops the watch; it is to leave no timer. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.watch.stop();
    assertEquals(this.clock.pendingTimers, 0);
  }
}

Deno.test("DriftWatch compares at once when something is gone, reports it, and counts by kind", async () => {
  await using stage = new Stage();
  stage.lost = { table: "nat" };
  stage.found = { counts: { chain: 3, rule: 0 }, fields: { chains: 3 } };
  await stage.pass(9);
  assertEquals(stage.looks, 0);
  await stage.pass(1);
  assertEquals(stage.drift, [{ kind: "chain", found: 3, repaired: 3 }]);
  assertEquals(stage.logger.lines.map(({ message, fields }) => [message, fields]), [
    [LOST, { component: "drift_watch", table: "nat" }],
    [REPAIRED, { component: "drift_watch", chains: 3 }],
  ]);
});

Deno.test("DriftWatch compares everything from time to time, and reports nothing if nothing is wrong", async () => {
  await using stage = new Stage();
  await stage.pass(290);
  assertEquals([stage.looks, stage.verifications], [29, 0]);
  await stage.pass(20);
  assertEquals([stage.verifications, stage.drift, stage.messages], [1, [], []]);
  await stage.pass(300);
  assertEquals(stage.verifications, 2);
});

Deno.test("DriftWatch looks when its subject says, which may change", async () => {
  await using stage = new Stage();
  await stage.pass(10);
  stage.pauseMs = 1_000;
  await stage.pass(10);
  assertEquals(stage.looks, 2, "the pause that had begun goes on");
  await stage.pass(10);
  assertEquals(stage.looks, 12);
});

Deno.test("DriftWatch reports that it cannot look, and looks again", async () => {
  await using stage = new Stage();
  stage.lookError = new Error("it hangs");
  await stage.pass(20);
  assertEquals([stage.looks, stage.verifications, stage.messages], [2, 0, [FAILED, FAILED]]);
  stage.lookError = undefined;
  stage.lost = {};
  await stage.pass(10);
  assertEquals(stage.verifications, 1);
});

Deno.test("DriftWatch tries a repair again that failed, though nothing is known then", async () => {
  await using stage = new Stage();
  stage.lost = {};
  stage.verifyError = new Error("no lock");
  await stage.pass(10);
  assertEquals([stage.verifications, stage.messages], [1, [LOST, FAILED]]);
  stage.isKnown = false;
  stage.found = { counts: { chain: 0, rule: 1 }, fields: {} };
  await stage.pass(10);
  assertEquals([stage.looks, stage.verifications, stage.drift], [1, 2, []]);
  stage.verifyError = undefined;
  await stage.pass(10);
  assertEquals(stage.drift, [{ kind: "rule", found: 1, repaired: 1 }]);
});

Deno.test("DriftWatch does not count as drift what a sync has failed to write", async () => {
  await using stage = new Stage();
  stage.found = { counts: { chain: 0, rule: 1 }, fields: {} };
  stage.isPending = true;
  stage.watch.recheck();
  await stage.pass(20);
  assertEquals([stage.verifications, stage.drift], [0, []]);
  stage.isPending = false;
  await stage.pass(10);
  assertEquals(
    [stage.verifications, stage.drift.length],
    [1, 1],
    "it was asked for, and comes then",
  );
});

Deno.test("DriftWatch leaves it to the first sync to compare", async () => {
  await using stage = new Stage();
  stage.isKnown = false;
  stage.lost = {};
  await stage.pass(600);
  assertEquals([stage.looks, stage.verifications], [0, 0]);
});

Deno.test("DriftWatch waits for a sync that is under way, and does not count that as the cost of reading", async () => {
  await using stage = new Stage();
  const sync = Promise.withResolvers<void>();
  const running = stage.turns.run(() => sync.promise);
  stage.lost = {};
  await stage.pass(60);
  assertEquals([stage.looks, stage.verifications], [1, 0]);
  sync.resolve();
  await running;
  await stage.pass(1);
  assertEquals(stage.verifications, 1);
  await stage.pass(310);
  assertEquals(stage.verifications, 2, "after five minutes, not after an hour");
});

Deno.test("DriftWatch reads less often if a read takes long", async () => {
  await using stage = new Stage();
  stage.verifyMs = 3_000;
  await stage.pass(303);
  assertEquals(stage.verifications, 1);
  await stage.pass(880);
  assertEquals(stage.verifications, 1);
  await stage.pass(30);
  assertEquals(stage.verifications, 2);
});

Deno.test("DriftWatch compares everything once and at once, when it is asked to", async () => {
  await using stage = new Stage();
  await stage.pass(1);
  stage.watch.recheck();
  await stage.pass(1);
  assertEquals([stage.looks, stage.verifications], [0, 1]);
  await stage.pass(100);
  assertEquals(stage.verifications, 1);
});

Deno.test("DriftWatch compares everything again, when it is asked to while it compares", async () => {
  await using stage = new Stage();
  stage.verifyMs = 5_000;
  stage.watch.recheck();
  await stage.pass(2);
  stage.watch.recheck();
  await stage.pass(2);
  assertEquals(stage.verifications, 1);
  await stage.pass(2);
  assertEquals(stage.verifications, 2);
  await stage.pass(30);
  assertEquals(stage.verifications, 2);
});

Deno.test("DriftWatch ends when a running repair has ended", async () => {
  const stage = new Stage();
  stage.verifyMs = 5_000;
  stage.watch.recheck();
  await stage.pass(1);
  let hasStopped = false;
  const stopped = stage.watch.stop().then(() => hasStopped = true);
  await stage.pass(3);
  assertEquals(hasStopped, false);
  await stage.pass(2);
  assertEquals(hasStopped, true);
  await stopped;
  await stage[Symbol.asyncDispose]();
});
