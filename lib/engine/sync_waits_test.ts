/**
 * Measures how long changes wait for their sync, compared with the runner of kube-proxy 1.36 in the
 * same run.
 */
import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { randomFrom } from "../../tests/support/builders/seeded_random.ts";
import { timedLoop } from "../../tests/support/builders/timed_loop.ts";
import type { SyncOutcome } from "./sync_loop.ts";

/** The default of `minSyncPeriod` in iptables and nftables mode. */
const PERIOD_MS = 1000;
/** The default of `syncPeriod`. */
const SYNC_PERIOD_MS = 30_000;

/** The input of both runners: requests at these times, and runs of `runMs`, some of which fail. */
interface History {
  readonly requests: readonly number[];
  readonly runMs: number;
  /** Numbers of runs that fail, from 1. */
  readonly fails?: readonly number[];
  /** The delay of timers, as on a busy node. */
  readonly lateMs?: number;
}

/** One run; `isGood` if it did not fail. */
interface Run {
  readonly start: number;
  readonly end: number;
  readonly isGood: boolean;
}

/** The methods of a runner that the histories call. */
interface Runner {
  request(): void;
  stop(): Promise<void>;
}

/**
 * The BoundedFrequencyRunner of kube-proxy 1.36, as it is documented: requests that wait are one; the
 * next run starts `minInterval` after the end of the last one at the earliest; a run that failed is
 * repeated after `retryInterval`, which is the sync period.
 */
class GapRunner implements Runner {
  readonly #clock: FakeClock;
  readonly #run: () => Promise<SyncOutcome>;
  #isWanted = false;
  #isBusy = false;

  constructor(clock: FakeClock, run: () => Promise<SyncOutcome>) {
    this.#clock = clock;
    this.#run = run;
  }

  request(): void {
    this.#isWanted = true;
    if (!this.#isBusy) void this.#turn();
  }

  stop(): Promise<void> {
    this.#isWanted = false;
    return Promise.resolve();
  }

  async #turn(): Promise<void> {
    this.#isBusy = true;
    this.#isWanted = false;
    if (await this.#run() === "retry") this.#clock.setTimer(SYNC_PERIOD_MS, () => this.request());
    await this.#clock.sleep(PERIOD_MS);
    this.#isBusy = false;
    if (this.#isWanted) await this.#turn();
  }
}

function createLoop(clock: FakeClock, run: () => Promise<SyncOutcome>): Runner {
  const periods = { minPeriodMs: PERIOD_MS, maxPeriodMs: 3_600_000, retryMs: () => 200 };
  const loop = timedLoop(clock, periods, run);
  return {
    request: () => loop.isOpen ? loop.request() : loop.open(),
    stop: () => loop.stop(),
  };
}

const createGapRunner = (clock: FakeClock, run: () => Promise<SyncOutcome>) =>
  new GapRunner(clock, run);

/** The runs of a runner for a history. */
async function runsOf(
  create: (clock: FakeClock, run: () => Promise<SyncOutcome>) => Runner,
  { requests, runMs, fails = [], lateMs = 0 }: History,
): Promise<readonly Run[]> {
  const clock = new FakeClock();
  const runs: Run[] = [];
  let count = 0;
  const runner = create(clock, async () => {
    const [start, isGood] = [clock.now(), !fails.includes(++count)];
    await clock.sleep(runMs);
    runs.push({ start, end: clock.now(), isGood });
    return isGood ? "done" : "retry";
  });
  for (const at of requests) {
    clock.stall(Math.min(lateMs, at - clock.now()));
    await clock.advance(at - clock.now());
    runner.request();
  }
  await clock.advance(2 * SYNC_PERIOD_MS + 10 * (PERIOD_MS + runMs));
  await runner.stop();
  return runs;
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

/** Returns the time at which the change of each request is written. */
function writtenAt({ requests }: History, runs: readonly Run[]): readonly number[] {
  return requests.map((at) => runs.find(({ start, isGood }) => isGood && start >= at)!.end);
}

function waits(history: History, runs: readonly Run[]): readonly number[] {
  return writtenAt(history, runs).map((at, index) => at - history.runMs - history.requests[index]!);
}

/** The times of changes. None of them may be written later than with kube-proxy. */
const HISTORIES: Readonly<Record<string, readonly number[]>> = {
  "one change": [0],
  "two at once": [0, 0],
  "two, and one later": [0, 100, 500],
  "a rollout": [0, 100, 400, 600, 700],
  "a burst, a pause and a burst": [0, 10, 20, 30, 5000, 5010, 5020],
  "bursts without a pause": Array.from({ length: 40 }, (_, index) => 250 * index),
  "changes that are far apart": Array.from({ length: 20 }, (_, index) => 3 * PERIOD_MS * index),
};

for (const [name, requests] of Object.entries(HISTORIES)) {
  Deno.test(`SyncLoop writes no change later than kube-proxy's runner: ${name}`, async () => {
    for (const runMs of [0, 30, 400, 900]) {
      for (const fails of [[], [1], [2, 3]]) {
        const history = { requests, runMs, fails };
        const upstream = writtenAt(history, await runsOf(createGapRunner, history));
        const ours = writtenAt(history, await runsOf(createLoop, history));
        const isLate = ours.some((at, index) => at > upstream[index]!);
        assert(
          !isLate,
          `${JSON.stringify(history)}: ${ours.join(" ")}, upstream ${upstream.join(" ")}`,
        );
      }
    }
  });
}

Deno.test("SyncLoop waits as decision 6 says, and so does kube-proxy's runner", async () => {
  const history = { requests: [0, 100, 500], runMs: 400 };
  assertEquals(waits(history, await runsOf(createGapRunner, history)), [0, 1300, 900]);
  assertEquals(waits(history, await runsOf(createLoop, history)), [0, 300, 900]);
});

// Over a long time no runner of the same rate can be first for each single change: which of them
// a change just misses is chance.
Deno.test("SyncLoop lets random changes wait no longer than kube-proxy's runner does, from the longest wait on", async (t) => {
  for (const runMs of [0, 30, 400, 900]) {
    for (const spacingMs of [50, 400, 1500]) {
      await t.step(`${runMs} ms a sync, a change every ${spacingMs} ms`, async () => {
        const requests = randomRequests({ count: 300, spacingMs, seed: runMs + spacingMs });
        const history = { requests, runMs };
        const upstream = waits(history, await runsOf(createGapRunner, history));
        const runs = await runsOf(createLoop, history);
        const ours = waits(history, runs);
        for (const [index, wait] of ours.entries()) {
          assert(wait <= PERIOD_MS + runMs, `change ${index} waits ${wait} ms`);
        }
        const longest = ours.toSorted((a, b) => b - a);
        for (const [index, wait] of upstream.toSorted((a, b) => b - a).entries()) {
          const difference = longest[index]! - wait;
          assert(difference <= PERIOD_MS / 100, `wait ${index} of ours is ${difference} ms longer`);
        }
        assert(sum(ours) <= sum(upstream), `${sum(ours)} ms, with kube-proxy ${sum(upstream)} ms`);
        for (const [index, { start }] of runs.entries()) {
          const within = runs.slice(index).filter((run) => run.start < start + 10 * PERIOD_MS);
          assert(within.length <= 2 + 10, `${within.length} runs within 10 s from ${start} ms on`);
        }
      });
    }
  }
});

Deno.test("SyncLoop makes one run more than kube-proxy's runner, however long changes last", async (t) => {
  for (const runMs of [0, 30, 400, 3000]) {
    await t.step(`${runMs} ms a sync`, async () => {
      const requests = randomRequests({ count: 5000, spacingMs: 40, seed: runMs });
      const upstream = await runsOf(createGapRunner, { requests, runMs });
      const ours = await runsOf(createLoop, { requests, runMs, lateMs: 100 });
      for (const [index, { start }] of upstream.entries()) {
        const runs = ours.filter((run) => run.start <= start).length;
        assert(runs <= index + 2, `${runs} runs until ${start} ms, ${index + 1} with kube-proxy`);
      }
    });
  }
});

Deno.test("SyncLoop lets no change wait for a run that changed nothing", async () => {
  const clock = new FakeClock();
  const starts: number[] = [];
  const outcomes: SyncOutcome[] = ["done", "unchanged", "unchanged", "unchanged", "done"];
  const runner = createLoop(clock, async () => {
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

Deno.test("SyncLoop spends at most a twentieth of the time on runs that change nothing", async () => {
  const clock = new FakeClock();
  let runs = 0;
  const runner = createLoop(clock, async () => {
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
