/**
 * How long changes wait for their sync, compared with the runner of kube-proxy 1.36: a fixed gap
 * from the end of each run to the start of the next.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { randomFrom } from "../../tests/support/builders/seeded_random.ts";
import { type RunOutcome, SyncRunner } from "./sync_runner.ts";

/** The default of `minSyncPeriod` in iptables and nftables mode. */
const PERIOD_MS = 1000;

/** When syncs start, with a sync of `runMs` for requests at these times. */
type Runner = (requests: readonly number[], runMs: number) => Promise<readonly number[]>;

const runWithGap: Runner = (requests, runMs) => {
  const starts: number[] = [];
  for (const at of requests) {
    const last = starts.at(-1);
    if (last === undefined) starts.push(at);
    else if (at > last) starts.push(Math.max(at, last + runMs + PERIOD_MS));
  }
  return Promise.resolve(starts);
};

const runWithBucket = async (requests: readonly number[], runMs: number, lateMs = 0) => {
  const clock = new FakeClock();
  const starts: number[] = [];
  const runner = startRunner(clock, async () => {
    starts.push(clock.now());
    await clock.sleep(runMs);
    return "done";
  });
  for (const at of requests) {
    // Timers fire late, as they do on a busy node.
    clock.stall(Math.min(lateMs, at - clock.now()));
    await clock.advance(at - clock.now());
    runner.request();
  }
  await clock.advance(10 * (PERIOD_MS + runMs));
  await runner.stop();
  return starts;
};

function startRunner(clock: FakeClock, run: () => Promise<RunOutcome>): SyncRunner {
  const periods = { minPeriodMs: PERIOD_MS, maxPeriodMs: 3_600_000 };
  const runner = new SyncRunner({ clock }, { ...periods, retryMs: () => 200, run });
  runner.start();
  return runner;
}

function randomRequests(
  { count, spacingMs, seed }: {
    readonly count: number;
    readonly spacingMs: number;
    readonly seed: number;
  },
): readonly number[] {
  const random = randomFrom(seed);
  let at = 0;
  return Array.from({ length: count }, () => at += Math.round(random() * 2 * spacingMs));
}

function waits(requests: readonly number[], starts: readonly number[]): readonly number[] {
  return requests.map((at) => starts.find((start) => start >= at)! - at);
}

Deno.test("SyncRunner lets a change after a burst wait no longer than a gap after each run does", async () => {
  const requests = [0, 100, 500];
  for (
    const { runner, expected } of [
      { runner: runWithGap, expected: [0, 1300, 900] },
      { runner: runWithBucket, expected: [0, 300, 900] },
    ]
  ) assertEquals(waits(requests, await runner(requests, 400)), expected);
});

Deno.test("SyncRunner lets no change wait longer than a gap after each run does, but for one run", async (t) => {
  for (const runMs of [0, 30, 400, 900]) {
    for (const spacingMs of [50, 400, 1500]) {
      await t.step(`${runMs} ms a sync, a change every ${spacingMs} ms`, async () => {
        const requests = randomRequests({ count: 300, spacingMs, seed: runMs + spacingMs });
        const gap = waits(requests, await runWithGap(requests, runMs));
        const starts = await runWithBucket(requests, runMs);
        const bucket = waits(requests, starts);
        for (const [index, wait] of bucket.entries()) {
          assert(wait <= PERIOD_MS + runMs, `change ${index} waits ${wait} ms`);
        }
        assert(sum(bucket) <= sum(gap), `${sum(bucket)} ms with a bucket, ${sum(gap)} ms without`);
        for (const [index, start] of starts.entries()) {
          const within = starts.slice(index).filter((at) => at < start + 10 * PERIOD_MS).length;
          assert(within <= 2 + 10, `${within} runs within 10 s from ${start} ms on`);
        }
      });
    }
  }
});

Deno.test("SyncRunner makes one run more than a gap after each run allows, however long changes last", async (t) => {
  for (const runMs of [0, 30, 400, 3000]) {
    await t.step(`${runMs} ms a sync`, async () => {
      const requests = randomRequests({ count: 5000, spacingMs: 40, seed: runMs });
      const gap = await runWithGap(requests, runMs);
      const bucket = await runWithBucket(requests, runMs, 100);
      for (const [index, start] of gap.entries()) {
        const runs = bucket.filter((at) => at <= start).length;
        assert(runs <= index + 2, `${runs} runs until ${start} ms, ${index + 1} with a gap`);
      }
    });
  }
});

Deno.test("SyncRunner lets no change wait for a run that changed nothing", async () => {
  const clock = new FakeClock();
  const starts: number[] = [];
  const outcomes: RunOutcome[] = ["done", "unchanged", "unchanged", "unchanged", "done"];
  const runner = startRunner(clock, async () => {
    starts.push(clock.now());
    await clock.sleep(1);
    return outcomes.shift() ?? "done";
  });
  // A Service, its slice without endpoints, two pods that are not ready, and the first that is.
  for (const at of [0, 100, 400, 600, 700]) {
    await clock.advance(at - clock.now());
    runner.request();
  }
  await clock.advance(0);
  assertEquals(starts, [0, 100, 400, 600, 700]);
  await clock.advance(1);
  await runner.stop();
});

Deno.test("SyncRunner spends at most a twentieth of the time on runs that change nothing", async () => {
  const clock = new FakeClock();
  let runs = 0;
  const runner = startRunner(clock, async () => {
    runs++;
    await clock.sleep(20);
    return "unchanged";
  });
  for (let at = 0; at < 60_000; at += 10) {
    runner.request();
    await clock.advance(10);
  }
  assert(runs * 20 <= 60_000 / 20 + 2 * PERIOD_MS, `${runs} runs of 20 ms in a minute`);
  assert(runs >= 60, `${runs} runs`);
  await runner.stop();
});

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
