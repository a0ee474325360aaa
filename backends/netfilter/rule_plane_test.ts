import { assertEquals } from "@std/assert";
import type { Batch, Objects } from "../../lib/engine/reconciler.ts";
import type { LogFields } from "../../lib/log/logger.ts";
import { OneAtATime } from "../../lib/net/one_at_a_time.ts";
import { FakeClock, settle } from "../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import {
  type CountingTarget,
  type DriftFigures,
  type FoundMachine,
  RulePlane,
} from "./rule_plane.ts";

const LOST = "Another program was here";
const FAILED = "Cannot look";
const REPAIRED = "Another program removed or changed rules; repairing";
const RULE = { kind: "rule", name: "first", text: "accept" };

/** Turns of which a test sees whether one is taken. */
class SeenTurns extends OneAtATime {
  isTaken = false;

  override run<T>(task: () => Promise<T>): Promise<T> {
    return super.run(async () => {
      this.isTaken = true;
      try {
        return await task();
      } finally {
        this.isTaken = false;
      }
    });
  }
}

/** One rule, in a kernel that is looked at every ten seconds, and compared every five minutes. */
class Plane extends RulePlane<CountingTarget<string>, string> implements CountingTarget<string> {
  readonly clock: FakeClock;
  readonly logger: MemoryLogger;
  /** The reported figures. */
  readonly drift: DriftFigures[];
  readonly operations = {};
  protected override readonly turns = new SeenTurns();
  /** For each comparison, whether its outcome was described in its own turn. */
  readonly describedInTurn: boolean[] = [];
  /** Of the rule; `undefined` = another program removed it. */
  text: string | undefined;
  hasUnwrittenPlan = false;
  pauseMs = 10_000;
  /** The canary that a flush removes; set if it is missing. */
  lost: LogFields | undefined;
  looks = 0;
  reads = 0;
  lookError: Error | undefined;
  readError: Error | undefined;
  /** The time that a full read takes. */
  readMs = 0;
  readonly #expected: { readonly items: number; readonly readingMs: number; shortestMs?: number };

  constructor(
    { random = 0, ...expected }: {
      readonly items?: number;
      readonly readingMs?: number;
      readonly shortestMs?: number;
      readonly random?: number;
    } = {},
  ) {
    const [clock, logger] = [new FakeClock(), new MemoryLogger()];
    const drift: DriftFigures[] = [];
    const onDrift = (figures: DriftFigures) => void drift.push(figures);
    const commands = new FakeCommandRunner();
    super({ clock, logger, commands, random: () => random, onDrift }, { family: "IPv4" });
    this.clock = clock;
    this.logger = logger;
    this.drift = drift;
    this.#expected = { items: 0, readingMs: 0, ...expected };
  }

  static async started(options?: ConstructorParameters<typeof Plane>[0]): Promise<Plane> {
    const plane = new Plane(options);
    await plane.start();
    await plane.sync();
    plane.reads = 0;
    return plane;
  }

  async sync(): Promise<void> {
    await this.engine!.sync();
    this.expectComparison(this.#expected.items);
  }

  /** Holds the turn as a long sync does. */
  hold(until: Promise<void>): Promise<void> {
    return this.turns.run(() => until);
  }

  protected prepare(): Promise<FoundMachine<CountingTarget<string>>> {
    const pauseMs = () => this.pauseMs;
    const { readingMs, shortestMs } = this.#expected;
    const watch = {
      texts: { lost: LOST, changed: REPAIRED, failed: FAILED },
      get pauseMs() {
        return pauseMs();
      },
      readingMs,
      ...(shortestMs !== undefined && { shortestMs }),
      look: () => {
        this.looks++;
        return this.lookError ? Promise.reject(this.lookError) : Promise.resolve(this.lost);
      },
      found: ({ length }: { readonly length: number }) => {
        this.describedInTurn.push(this.turns.isTaken);
        return { counts: { chain: 0, rule: length }, fields: { rules: length } };
      },
    };
    return Promise.resolve({ target: this, watch });
  }

  protected remove(): Promise<never> {
    throw new Error("not asked for");
  }

  countAnew(): void {}

  keys(): readonly string[] {
    return ["key"];
  }

  dirty(): readonly string[] {
    return [];
  }

  arrange(): typeof RULE {
    return RULE;
  }

  objectsOf(): readonly typeof RULE[] {
    return [RULE];
  }

  async read(): Promise<Objects> {
    this.reads++;
    if (this.readError) throw this.readError;
    if (this.readMs > 0) await this.clock.sleep(this.readMs);
    const { kind, name } = RULE;
    return new Map([[kind, new Map(this.text === undefined ? [] : [[name, this.text]])]]);
  }

  begin(): Batch<string> {
    return {
      add: (_, __, after) => this.text = after,
      commit: () => {
        this.lost = undefined;
        return Promise.resolve();
      },
    };
  }

  /** Lets time go by, a second at a time. */
  async pass(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second++) {
      await this.clock.advance(1_000);
      for (let turn = 0; turn < 5; turn++) await settle();
    }
  }

  /** Warnings, in order. */
  get messages(): string[] {
    return this.logger.lines.filter(({ level }) => level === "warn").map(({ message }) => message);
  }

  /** Stops the watch; it is to leave no timer. */
  override async [Symbol.asyncDispose](): Promise<void> {
    await super[Symbol.asyncDispose]();
    assertEquals(this.clock.pendingTimers, 0);
  }
}

const ONE_RULE = { kind: "rule", found: 1, repaired: 1 } as const;

for (
  const [options, readMs, firstAfter, nextAfter] of [
    [{}, 0, 300, 300],
    [{ random: 1 }, 0, 270, 270],
    [{ shortestMs: 10_000 }, 0, 10, 10],
    [{ items: 10_000, readingMs: 0.1 }, 3_000, 300, 900],
    [{ items: 20_000, readingMs: 0.1 }, 60_000, 600, 3_600],
  ] as const
) {
  const expected = JSON.stringify(options);
  Deno.test(`RulePlane compares after ${firstAfter} s and, if it took ${readMs} ms, ${nextAfter} s: ${expected}`, async () => {
    await using plane = await Plane.started(options);
    plane.pauseMs = 1_000;
    plane.readMs = readMs;
    await plane.pass(firstAfter - 1);
    assertEquals(plane.reads, 0);
    await plane.pass(1);
    assertEquals(plane.reads, 1);
    await plane.pass(readMs / 1_000 + nextAfter - 1);
    assertEquals(plane.reads, 1);
    await plane.pass(2);
    assertEquals(plane.reads, 2);
    await plane.pass(readMs / 1_000);
  });
}

Deno.test("RulePlane reports that it cannot look, and looks again", async () => {
  await using plane = await Plane.started();
  plane.lookError = new Error("it hangs");
  await plane.pass(20);
  assertEquals([plane.looks, plane.reads, plane.messages], [2, 0, [FAILED, FAILED]]);
  plane.lookError = undefined;
  plane.lost = {};
  await plane.pass(10);
  assertEquals(plane.reads, 1);
});

Deno.test("RulePlane does not count as drift what a sync has failed to write", async () => {
  await using plane = await Plane.started();
  plane.text = undefined;
  plane.hasUnwrittenPlan = true;
  plane.recheck();
  await plane.pass(20);
  assertEquals([plane.reads, plane.drift, await plane.repair()], [0, [], {}]);
  plane.hasUnwrittenPlan = false;
  await plane.pass(10);
  assertEquals(plane.drift, [ONE_RULE], "it was asked for, and comes then");
});

Deno.test("RulePlane waits for a sync that is under way, and does not count that as the cost of reading", async () => {
  await using plane = await Plane.started();
  const sync = Promise.withResolvers<void>();
  const running = plane.hold(sync.promise);
  plane.recheck();
  await plane.pass(60);
  assertEquals(plane.reads, 0);
  sync.resolve();
  await running;
  await plane.pass(1);
  assertEquals(plane.reads, 1);
  await plane.pass(310);
  assertEquals(plane.reads, 2, "after five minutes, not after an hour");
});

Deno.test("RulePlane compares everything once and at once, when it is asked to", async () => {
  await using plane = await Plane.started();
  await plane.pass(1);
  plane.recheck();
  await plane.pass(1);
  assertEquals([plane.looks, plane.reads], [0, 1]);
  await plane.pass(100);
  assertEquals(plane.reads, 1);
});

Deno.test("RulePlane compares everything again, when it is asked to while it compares", async () => {
  await using plane = await Plane.started();
  plane.readMs = 5_000;
  plane.recheck();
  await plane.pass(2);
  plane.recheck();
  await plane.pass(2);
  assertEquals(plane.reads, 1);
  await plane.pass(2);
  assertEquals(plane.reads, 2);
  await plane.pass(30);
  assertEquals(plane.reads, 2);
});

Deno.test("RulePlane ends when a running repair has ended", async () => {
  await using plane = await Plane.started();
  plane.readMs = 5_000;
  plane.recheck();
  await plane.pass(1);
  let hasStopped = false;
  const stopped = plane.drain().then(() => hasStopped = true);
  await plane.pass(3);
  assertEquals(hasStopped, false);
  await plane.pass(2);
  assertEquals(hasStopped, true);
  await stopped;
});
