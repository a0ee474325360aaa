/**
 * Runs two hours of fake time with the fake server, and minutes of real time with the real one.
 *
 * @module
 */
import { assert } from "@std/assert";
import { systemClock } from "../../lib/os/clock.ts";
import { startApiMachinery } from "../support/stages/api_machinery.ts";
import { eventually } from "../support/eventually.ts";
import { FakeApiServer } from "../support/fakes/fake_api_server.ts";
import { FakeClock } from "../support/fakes/fake_clock.ts";
import { chooseSeed, randomFrom } from "../support/builders/seeded_random.ts";
import { StaticAuth } from "../support/builders/static_auth.ts";
import { TcpRelay } from "../support/drivers/tcp_relay.ts";
import { assertHolds, holds, LongRunProxy, RandomCluster } from "./long_run.ts";
import { tokenAuth } from "./machinery_auth.ts";

const FAKE_HOURS = 2;
/** Fake time that passes between two looks at the sockets, whose time is real. */
const STEP_MS = 1000;
/**
 * In CI the required number; on a developer's machine enough for each fault to occur a few times.
 */
const REAL_SECONDS = Deno.env.get("REQUIRE_ALL") === "1" ? 300 : 30;

/** Defines the test on the fake server. */
export function defineFakeLongRun(): void {
  Deno.test(`kube-relay matches the objects after ${FAKE_HOURS} hours of failures (fake)`, async () => {
    const seed = chooseSeed();
    const random = randomFrom(seed);
    await using fake = await FakeApiServer.start();
    fake.endsWatches = false;
    await using relay = await TcpRelay.start(fake.port);
    const cluster = new RandomCluster(storeOf(fake), random);
    await cluster.fill();
    const clock = new FakeClock();
    const auth = new StaticAuth(`https://127.0.0.1:${relay.port}`, { ca: fake.ca });
    await using proxy = new LongRunProxy({ clock, auth });
    const faults = fakeFaults(fake, { relay, random });
    let failures = 0;
    for (let at = 0; at < FAKE_HOURS * 3_600_000; at += STEP_MS) {
      if (random() < 0.1) await cluster.change();
      const fault = faults[Math.floor(random() * 40 * faults.length)];
      if (fault) failures++;
      fault?.();
      await pass(clock);
    }
    for (let steps = 0; steps < 1800 && !holds(proxy, cluster); steps++) await pass(clock);
    assertHolds(proxy, cluster, seed);
    cluster.assertNoneWithoutCause(proxy.backend);
    assert(failures > 100, `only ${failures} failures`);
  });
}

/** Returns the faults of the fake, which happen one at a time. */
function fakeFaults(
  fake: FakeApiServer,
  { relay, random }: { readonly relay: TcpRelay; readonly random: () => number },
): readonly (() => void)[] {
  const some = () => 1 + Math.floor(random() * 5);
  return [
    () => fake.failNext({ status: 503, times: some() }),
    () => fake.failNext({ status: 503, times: some(), watch: true }),
    () => fake.failNext({ status: 429, retryAfterSeconds: 3, times: some() }),
    () => fake.failNext({ status: 500, times: some() }),
    () => relay.resetOpen(),
    () => relay.closeOpen(),
    () => relay.freezeOpen(),
    () => fake.compact(),
    () => fake.forEachWatch((watch) => watch.end()),
  ];
}

function storeOf({ store }: FakeApiServer) {
  return {
    create: (object: Parameters<typeof store.create>[0]) => Promise.resolve(store.create(object)),
    update: (object: Parameters<typeof store.update>[0]) => Promise.resolve(store.update(object)),
    delete: (object: Parameters<typeof store.delete>[0]) =>
      Promise.resolve(void store.delete(object)),
  };
}

/** Advances fake time by one step, and lets the sockets deliver their data. */
async function pass(clock: FakeClock): Promise<void> {
  await clock.advance(STEP_MS);
  await systemClock.sleep(1);
}

/** Defines the test on the real API machinery. */
export function defineRealLongRun(program: string): void {
  Deno.test(`kube-relay matches the objects after ${REAL_SECONDS} s of failures (k8s.io/apiserver)`, async () => {
    const seed = chooseSeed();
    const random = randomFrom(seed);
    await using server = await startApiMachinery({ program });
    await using relay = await TcpRelay.start(Number(new URL(server.url).port));
    const cluster = new RandomCluster(server, random);
    await cluster.fill();
    await using proxy = new LongRunProxy({
      clock: systemClock,
      auth: { ...tokenAuth(server), server: `https://127.0.0.1:${relay.port}` },
      timing: {
        backoff: { initialMs: 50, maxMs: 500 },
        connectTimeoutMs: 500,
        responseTimeoutMs: 1000,
        pingAfterMs: 500,
        pingTimeoutMs: 500,
        minWatchSeconds: 1,
        watchGraceMs: 500,
      },
    });
    const faults = [
      () => Promise.resolve(relay.resetOpen()),
      () => Promise.resolve(relay.closeOpen()),
      () => Promise.resolve(relay.freezeOpen()),
      () => server.compactEtcd(),
      async () => {
        server.freezeApi();
        await systemClock.sleep(1500);
        server.thawApi();
      },
      async () => {
        await server.rotateToken();
      },
    ];
    const end = performance.now() + REAL_SECONDS * 1000;
    let rounds = 0;
    for (; performance.now() < end; rounds++) {
      await cluster.change();
      // Once in a while the process itself, with its history behind it.
      if (rounds % 200 === 199) await server.compact();
      else await faults[Math.floor(random() * 6 * faults.length)]?.();
      await systemClock.sleep(100);
    }
    await eventually("the data plane holds every change", () => holds(proxy, cluster), {
      deadlineMs: 30_000,
    }).catch(() => assertHolds(proxy, cluster, seed));
    cluster.assertNoneWithoutCause(proxy.backend);
    assert(rounds > REAL_SECONDS, `only ${rounds} rounds`);
  });
}
