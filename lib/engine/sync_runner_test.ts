import { assertEquals, assertThrows } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import {
  retryBackoff,
  type RunOutcome,
  SyncRunner,
  type SyncRunnerOptions,
} from "./sync_runner.ts";

/** The tables of the specification speak of seconds since the loop started, and of runs so far. */
type Step = readonly [
  atSeconds: number,
  action: "request" | "fail next" | "start" | "stop" | "-",
  runs: number,
];

interface Timeline {
  readonly name: string;
  readonly options?: Partial<SyncRunnerOptions>;
  readonly runMs?: number;
  readonly alwaysFails?: boolean;
  readonly startsLate?: boolean;
  readonly steps: readonly Step[];
}

/** Upstream's 1.36 runner has no burst and a constant retry; so are its tables driven. */
const UPSTREAM: SyncRunnerOptions = {
  minPeriodMs: 1000,
  burst: 1,
  maxPeriodMs: 10_000,
  retryMs: () => 5000,
};

const TIMELINES: readonly Timeline[] = [
  {
    name: "coalesces requests into one run at the end of the gap",
    steps: [
      [0, "request", 1],
      [0.5, "request", 1],
      [0.999, "request", 1],
      [1.0, "-", 2],
      [1.0, "request", 2],
      [1.001, "request", 2],
      [1.999, "-", 2],
      [2.0, "-", 3],
      [3.0, "-", 3],
      [11.999, "-", 3],
      [12.0, "-", 4],
      [12.001, "request", 4],
      [13.0, "-", 5],
    ],
  },
  {
    name: "retries after a failure, and a successful run cancels the retry",
    steps: [
      [0, "fail next", 0],
      [0, "request", 1],
      [1.0, "-", 1],
      [4.999, "-", 1],
      [5.0, "-", 2],
      [5.499, "request", 2],
      [5.5, "fail next", 2],
      [6.0, "-", 3],
      [7.0, "request", 4],
      [11.0, "-", 4],
      [11.0, "fail next", 4],
      [11.0, "request", 5],
      [11.1, "request", 5],
      [12.0, "-", 6],
      [16.0, "-", 6],
      [21.0, "-", 6],
      [22.0, "-", 7],
    ],
  },
  {
    name: "lets a retry shorter than the period wait for the period",
    options: { minPeriodMs: 5000, retryMs: () => 1000 },
    steps: [
      [0, "fail next", 0],
      [0, "request", 1],
      [1, "-", 1],
      [4.999, "-", 1],
      [5, "-", 2],
      [14.999, "-", 2],
      [15, "-", 3],
    ],
  },
  {
    name: "runs first after the longest period without a request",
    steps: [[0, "-", 0], [9.999, "-", 0], [10, "-", 1]],
  },
  {
    name: "keeps a request from before the start",
    startsLate: true,
    steps: [[0, "request", 0], [3, "-", 0], [3, "start", 1]],
  },
  {
    name: "counts the period from the end of a long run",
    runMs: 3000,
    steps: [[0, "request", 1], [1, "request", 1], [2, "request", 1], [3.999, "-", 1], [4, "-", 2], [
      9,
      "-",
      2,
    ]],
  },
  {
    name: "never waits without a period",
    options: { minPeriodMs: 0 },
    steps: [[0, "request", 1], [0, "request", 2], [0, "request", 3]],
  },
  {
    name: "cuts the retry to the longest period",
    alwaysFails: true,
    options: { retryMs: () => 20_000 },
    steps: [[0, "request", 1], [9.999, "-", 1], [10, "-", 2]],
  },
  {
    name: "retries for ever",
    alwaysFails: true,
    steps: [[0, "request", 1], [5, "-", 2], [10, "-", 3], [15, "-", 4], [19.999, "-", 4]],
  },
  {
    name: "runs a request after a failure at the end of the gap, without a second retry",
    steps: [[0, "fail next", 0], [0, "request", 1], [0.5, "request", 1], [1, "-", 2], [5, "-", 2], [
      10.999,
      "-",
      2,
    ]],
  },
  {
    name: "starts nothing after stop",
    steps: [[0, "request", 1], [0.5, "request", 1], [0.6, "stop", 1], [30, "-", 1]],
  },
  {
    name: "lets two runs follow each other after a quiet time with a burst of two",
    options: { burst: 2 },
    steps: [
      [0, "request", 1],
      [0.001, "request", 2],
      [0.5, "request", 2],
      [0.999, "request", 2],
      [1.0, "-", 3],
      [10.999, "-", 3],
      [11.0, "-", 4],
    ],
  },
];

for (const timeline of TIMELINES) {
  Deno.test(`SyncRunner ${timeline.name}`, async () => {
    const clock = new FakeClock();
    let runs = 0;
    let failNext = false;
    const run = async (): Promise<RunOutcome> => {
      runs++;
      const outcome = failNext || timeline.alwaysFails ? "retry" : "done";
      failNext = false;
      if (timeline.runMs) await clock.sleep(timeline.runMs);
      return outcome;
    };
    const runner = new SyncRunner({ clock }, { ...UPSTREAM, ...timeline.options, run });
    if (!timeline.startsLate) runner.start();
    for (const [at, action, expected] of timeline.steps) {
      await clock.advance(at * 1000 - clock.now());
      if (action === "request") runner.request();
      if (action === "fail next") failNext = true;
      if (action === "start") runner.start();
      if (action === "stop") await runner.stop();
      await clock.advance(0);
      assertEquals(runs, expected, `runs at ${at} s after '${action}'`);
    }
    const stopped = runner.stop();
    await clock.advance(10_000);
    await stopped;
  });
}

Deno.test("SyncRunner makes one run of 100 requests within one gap", async () => {
  const clock = new FakeClock();
  let runs = 0;
  const runner = new SyncRunner({ clock }, {
    ...UPSTREAM,
    run: () => Promise.resolve<RunOutcome>((runs++, "done")),
  });
  runner.start();
  runner.request();
  for (let i = 0; i < 100; i++) {
    await clock.advance(5);
    runner.request();
  }
  await clock.advance(5000);
  assertEquals(runs, 2);
  await runner.stop();
});

Deno.test("SyncRunner treats a thrown error as a failed run", async () => {
  const clock = new FakeClock();
  let runs = 0;
  const runner = new SyncRunner({ clock }, {
    ...UPSTREAM,
    run: () => ++runs === 1 ? Promise.reject(new Error("broken")) : Promise.resolve("done"),
  });
  runner.start();
  runner.request();
  await clock.advance(5000);
  assertEquals(runs, 2);
  await runner.stop();
});

Deno.test("SyncRunner.stop() waits for the run in flight", async () => {
  const clock = new FakeClock();
  const events: string[] = [];
  const runner = new SyncRunner({ clock }, {
    ...UPSTREAM,
    run: async () => {
      await clock.sleep(3000);
      events.push("run ended");
      return "done";
    },
  });
  runner.start();
  runner.request();
  await clock.advance(0);
  const stopped = runner.stop().then(() => events.push("stopped"));
  await clock.advance(3000);
  await stopped;
  assertEquals(events, ["run ended", "stopped"]);
});

Deno.test("SyncRunner.activity describes waiting and running syncs", async () => {
  const clock = new FakeClock();
  const runner = new SyncRunner({ clock }, {
    ...UPSTREAM,
    run: async () => {
      await clock.sleep(500);
      return "done";
    },
  });
  await clock.advance(100);
  runner.request();
  assertEquals(runner.activity, { pendingSince: 100 });
  runner.start();
  await clock.advance(0);
  assertEquals(runner.activity, { runningSince: 100 });
  await clock.advance(500);
  assertEquals(runner.activity, {});
  await runner.stop();
});

Deno.test("SyncRunner refuses a longest period below the minimum", () => {
  assertThrows(
    () =>
      new SyncRunner({ clock: new FakeClock() }, {
        ...UPSTREAM,
        minPeriodMs: 20_000,
        run: () => Promise.resolve("done"),
      }),
    RangeError,
    "shorter than the minimum period of 20000 ms",
  );
});

Deno.test("retryBackoff() doubles from 0.2 s to 10 s and adds at most a tenth", () => {
  const plain = retryBackoff(() => 0);
  assertEquals([1, 2, 3, 6, 7, 8, 100].map(plain), [200, 400, 800, 6400, 10_000, 10_000, 10_000]);
  assertEquals(retryBackoff(() => 1)(1), 220);
});
