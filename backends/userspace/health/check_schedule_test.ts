import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { randomFrom } from "../../../tests/support/builders/seeded_random.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { CheckSchedule } from "./check_schedule.ts";
import { HealthCheck } from "./health_check.ts";

function checkOf(namespace: string, timing: { intervalMs?: number; timeoutMs?: number } = {}) {
  return new HealthCheck<never>("", {
    ...{ namespace, address: parseIpAddress("10.0.0.1"), port: parsePort(80), rise: 1, fall: 1 },
    ...{ intervalMs: 10_000, timeoutMs: 2000, ...timing },
  });
}

interface Started {
  readonly check: HealthCheck<never>;
  readonly at: number;
  readonly end: () => void;
}

/** A schedule of checks that end when the test ends them, or after their time-out. */
class Stage {
  readonly clock = new FakeClock();
  readonly started: Started[] = [];
  most = 0;
  running = 0;
  /** Ends each check after so long; `undefined` = it hangs. */
  takesMs: number | undefined = 5;
  /** A namespace whose checks all hang. */
  hanging: string | undefined;
  readonly schedule: CheckSchedule<never>;

  constructor(openFiles = new OpenFiles()) {
    const random = randomFrom(1);
    const { clock } = this;
    this.schedule = new CheckSchedule({ clock, openFiles, random }, (check, signal) => {
      this.most = Math.max(this.most, ++this.running);
      const { promise, resolve } = Promise.withResolvers<void>();
      this.started.push({ check, at: clock.now(), end: resolve });
      signal.addEventListener("abort", () => resolve());
      const hangs = this.takesMs === undefined || check.target.namespace === this.hanging;
      if (!hangs) clock.setTimer(this.takesMs!, resolve);
      return promise.then(() => void this.running--);
    });
  }
}

Deno.test("CheckSchedule spreads the first checks of 1,000 endpoints over the interval", async () => {
  const stage = new Stage();
  for (let count = 0; count < 1000; count++) stage.schedule.add(checkOf("a"));
  await stage.clock.advance(10_500);
  const first = new Map(stage.started.toReversed().map(({ check, at }) => [check, at]));
  const tenths = Array.from(
    { length: 10 },
    (_, tenth) => first.values().filter((at) => Math.floor(at / 1000) === tenth).toArray().length,
  );
  assert(tenths.every((count) => count >= 90 && count <= 110), `${tenths}`);
  assertEquals(first.size, 1000);
  assert(stage.most <= 10, `${stage.most} at once`);
  stage.schedule.close();
});

Deno.test("CheckSchedule repeats a check in its interval, with jitter", async () => {
  const stage = new Stage();
  stage.schedule.add(checkOf("a", { intervalMs: 1000 }));
  await stage.clock.advance(100_000);
  const times = stage.started.map(({ at }) => at);
  const gaps = times.slice(1).map((at, index) => at - times[index]!);
  assert(gaps.length >= 88 && gaps.length <= 111, `${gaps.length}`);
  assert(gaps.every((gap) => gap >= 899 && gap <= 1121), `${gaps}`);
  assert(new Set(gaps).size > 50, "the gaps vary");
  stage.schedule.close();
});

Deno.test("CheckSchedule has at most 128 checks in progress, of hanging endpoints too", async () => {
  const stage = new Stage();
  stage.takesMs = undefined;
  for (let count = 0; count < 1000; count++) stage.schedule.add(checkOf(`ns${count % 50}`));
  await stage.clock.advance(60_000);
  assertEquals(stage.most, 128);
  assert(new Set(stage.started.map(({ check }) => check)).size === 1000, "each had its turn");
  // 128 in each time-out of two seconds.
  assert(stage.started.length > 25 * 120, `${stage.started.length}`);
  stage.schedule.close();
  await settle();
  assertEquals(stage.running, 0);
});

Deno.test("CheckSchedule starts at most 500 checks a second, however many are due", async () => {
  const stage = new Stage();
  for (let count = 0; count < 2000; count++) {
    stage.schedule.add(checkOf("a", { intervalMs: 1000 }));
  }
  stage.clock.stall(60_000);
  await stage.clock.advance(1000);
  assert(stage.started.length <= 510, `${stage.started.length}`);
  assert(stage.started.length >= 450, `${stage.started.length}`);
  assert(stage.most <= 20, `${stage.most} at once`);
  stage.schedule.close();
});

Deno.test("CheckSchedule lets namespaces take turns when checks have to wait", async () => {
  const stage = new Stage();
  stage.takesMs = undefined;
  for (let count = 0; count < 2000; count++) stage.schedule.add(checkOf("hanging"));
  await stage.clock.advance(20_000);
  const good = checkOf("good", { intervalMs: 1000 });
  stage.schedule.add(good);
  const before = stage.clock.now();
  await stage.clock.advance(60_000);
  const times = stage.started.filter(({ check }) => check === good).map(({ at }) => at);
  assert(times.length >= 15, `${times.length} in 60 s`);
  assert(times[0]! - before < 4000, `${times[0]! - before}`);
  stage.schedule.close();
});

Deno.test("CheckSchedule.delete() forgets a check, whether idle, waiting or in progress", async () => {
  const stage = new Stage(new OpenFiles(100));
  stage.takesMs = undefined;
  const checks = Array.from({ length: 20 }, () => checkOf("a", { intervalMs: 1000 }));
  for (const check of checks) stage.schedule.add(check);
  await stage.clock.advance(1100);
  assert(stage.running > 0 && stage.running < 20, "some wait for sockets");
  for (const check of checks) stage.schedule.delete(check);
  const count = stage.started.length;
  await stage.clock.advance(60_000);
  assertEquals([stage.started.length, stage.running], [count, 0]);
  assertEquals(stage.clock.pendingTimers, 0);
});

Deno.test("CheckSchedule waits for sockets that others have, and goes on", async () => {
  const openFiles = new OpenFiles();
  // One of each namespace, as one alone gets a part only.
  for (let others = 0; openFiles.takeCheck(`other${others}`);) others++;
  const stage = new Stage(openFiles);
  stage.schedule.add(checkOf("a", { intervalMs: 1000 }));
  await stage.clock.advance(5000);
  assertEquals(stage.started.length, 0);
  openFiles.giveCheck("other0");
  await stage.clock.advance(200);
  assertEquals(stage.started.length, 1);
  stage.schedule.close();
});

Deno.test("CheckSchedule starts checks of other namespaces while one has used up its share of files", async () => {
  const openFiles = new OpenFiles(1000);
  let service = 0;
  while (openFiles.takeTraffic(`ns/s${service}`, "connection") === undefined) service++;
  for (let free = 0; free < 4; free++) openFiles.giveTraffic(`ns/s${free}`, "connection");
  const stage = new Stage(openFiles);
  stage.takesMs = undefined;
  const hanging = { intervalMs: 1000, timeoutMs: 3_600_000 };
  for (let count = 0; count < 20; count++) stage.schedule.add(checkOf("hanging", hanging));
  await stage.clock.advance(1100);
  assertEquals(stage.running, 6, "of 8 free sockets");
  const good = ["good", "better"].map((namespace) => checkOf(namespace, { intervalMs: 1000 }));
  for (const check of good) stage.schedule.add(check);
  await stage.clock.advance(1100);
  assertEquals(good.filter((check) => stage.started.some((each) => each.check === check)), good);
  stage.schedule.close();
});

/** Adds checks of a namespace in their usual interval. Returns how often each has started since. */
function addGood(stage: Stage, count: number): () => readonly number[] {
  const checks = Array.from({ length: count }, () => checkOf("good"));
  for (const check of checks) stage.schedule.add(check);
  return () =>
    checks.map((check) => stage.started.filter((started) => started.check === check).length);
}

Deno.test("CheckSchedule makes all checks of a namespace in time while those of another hang for long", async () => {
  const stage = new Stage();
  stage.hanging = "hanging";
  const longest = { intervalMs: 1000, timeoutMs: 60_000 };
  for (let count = 0; count < 500; count++) stage.schedule.add(checkOf("hanging", longest));
  await stage.clock.advance(2000);
  assertEquals(stage.most, 86, "two thirds");
  const starts = addGood(stage, 100);
  await stage.clock.advance(100_000);
  assert(starts().every((count) => count >= 8), `${starts()}`);
  stage.schedule.close();
});

Deno.test("CheckSchedule makes all checks of a namespace in time while another has too many", async () => {
  const stage = new Stage();
  const often = { intervalMs: 1000 };
  for (let count = 0; count < 20_000; count++) stage.schedule.add(checkOf("many", often));
  await stage.clock.advance(20_000);
  const starts = addGood(stage, 100);
  const late = checkOf("late", { intervalMs: 1000, timeoutMs: 2000 });
  stage.schedule.add(late);
  stage.hanging = "late";
  await stage.clock.advance(100_000);
  assert(starts().every((count) => count >= 8), `${starts()}`);
  const times = stage.started.filter(({ check }) => check === late).map(({ at }) => at);
  assert(times.length > 100_000 / 2500, `the time-out is in time: ${times.length}`);
  stage.schedule.close();
});
