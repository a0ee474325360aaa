import { assertEquals } from "@std/assert";
import { timedLoop } from "../../tests/support/builders/timed_loop.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { retryBackoff, type SyncPeriods } from "./sync_loop.ts";

interface Timeline {
  readonly name: string;
  readonly options?: Partial<SyncPeriods>;
  readonly runMs?: number;
  readonly alwaysFails?: boolean;
  /**
   * `<seconds since the loop started>: <request, fail next or stop, or nothing> <runs so far>`, as in the
   * tables of the specification.
   */
  readonly steps: string;
}

/** kube-proxy's runner of 1.36 has no burst and a constant retry; so are its tables driven. */
const UPSTREAM: SyncPeriods = {
  minPeriodMs: 1000,
  burst: 1,
  maxPeriodMs: 10_000,
  retryMs: () => 5000,
};

const TIMELINES: readonly Timeline[] = [
  {
    name: "coalesces requests into one run at the end of the gap",
    steps:
      "0: request 1, 0.5: request 1, 0.999: request 1, 1.0: 2, 1.0: request 2, 1.001: request 2, 1.999: 2, " +
      "2.0: 3, 3.0: 3, 11.999: 3, 12.0: 4, 12.001: request 4, 13.0: 5",
  },
  {
    name: "retries after a failure, and a successful run cancels the retry",
    steps:
      "0: fail next 0, 0: request 1, 1.0: 1, 4.999: 1, 5.0: 2, 5.499: request 2, 5.5: fail next 2, 6.0: 3, 7.0: request 4, " +
      "11.0: 4, 11.0: fail next 4, 11.0: request 5, 11.1: request 5, 12.0: 6, 16.0: 6, 21.0: 6, 22.0: 7",
  },
  {
    name: "lets a retry shorter than the period wait for the period",
    options: { minPeriodMs: 5000, retryMs: () => 1000 },
    steps: "0: fail next 0, 0: request 1, 1: 1, 4.999: 1, 5: 2, 14.999: 2, 15: 3",
  },
  {
    name: "counts the period from the end of a long run",
    runMs: 3000,
    steps: "0: request 1, 1: request 1, 2: request 1, 3.999: 1, 4: 2, 9: 2",
  },
  {
    name: "never waits without a period",
    options: { minPeriodMs: 0 },
    steps: "0: request 1, 0: request 2, 0: request 3",
  },
  {
    name: "cuts the retry to the longest period",
    alwaysFails: true,
    options: { retryMs: () => 20_000 },
    steps: "0: request 1, 9.999: 1, 10: 2",
  },
  {
    name: "retries for ever",
    alwaysFails: true,
    steps: "0: request 1, 5: 2, 10: 3, 15: 4, 19.999: 4",
  },
  {
    name: "runs a request after a failure at the end of the gap, without a second retry",
    steps: "0: fail next 0, 0: request 1, 0.5: request 1, 1: 2, 5: 2, 10.999: 2",
  },
  {
    name: "starts nothing after stop",
    steps: "0: request 1, 0.5: request 1, 0.6: stop 1, 30: 1",
  },
  {
    name: "lets two runs follow each other after a quiet time with a burst of two",
    options: { burst: 2 },
    steps:
      "0: request 1, 0.001: request 2, 0.5: request 2, 0.999: request 2, 1.0: 3, 10.999: 3, 11.0: 4",
  },
];

for (const timeline of TIMELINES) {
  Deno.test(`SyncLoop ${timeline.name}`, async () => {
    const clock = new FakeClock();
    let runs = 0;
    let failNext = false;
    const loop = timedLoop(clock, { ...UPSTREAM, ...timeline.options }, async () => {
      runs++;
      const outcome = failNext || timeline.alwaysFails ? "retry" : "done";
      failNext = false;
      if (timeline.runMs) await clock.sleep(timeline.runMs);
      return outcome;
    });
    for (const step of timeline.steps.split(", ")) {
      const [, at, action, expected] = /^(\S+): (?:(.+) )?(\d+)$/.exec(step)!;
      await clock.advance(Number(at) * 1000 - clock.now());
      // The first request is the permission to sync.
      if (action === "request") loop.isOpen ? loop.request() : loop.open();
      if (action === "fail next") failNext = true;
      if (action === "stop") await loop.stop();
      await clock.advance(0);
      assertEquals(runs, Number(expected), `runs after '${step}'`);
    }
    const stopped = loop.stop();
    await clock.advance(10_000);
    await stopped;
  });
}

Deno.test("SyncLoop.stop() waits for the sync in flight, which its activity shows", async () => {
  const clock = new FakeClock();
  let isEnded = false;
  const loop = timedLoop(clock, UPSTREAM, async () => {
    await clock.sleep(3000);
    isEnded = true;
    return "done";
  });
  loop.request();
  await clock.advance(100);
  assertEquals(loop.activity, {}, "it is not open");
  loop.open();
  loop.request();
  await clock.advance(0);
  assertEquals(loop.activity, { pendingSince: 100, runningSince: 100 });
  const stopped = loop.stop().then(() => isEnded);
  await clock.advance(3000);
  assertEquals([await stopped, loop.activity], [true, {}]);
});

Deno.test("retryBackoff() doubles from 0.2 s to 10 s and adds at most a tenth", () => {
  const plain = retryBackoff(() => 0);
  assertEquals([1, 2, 3, 6, 7, 8, 100].map(plain), [200, 400, 800, 6400, 10_000, 10_000, 10_000]);
  assertEquals(retryBackoff(() => 1)(1), 220);
});
