/**
 * Runs for a minute with a real API server that fails again and again.
 *
 * @module
 */
import { assert } from "@std/assert";
import { systemClock } from "../../lib/os/clock.ts";
import { startApiMachinery } from "../support/stages/api_machinery.ts";
import { eventually } from "../support/eventually.ts";
import { chooseSeed, randomFrom } from "../support/builders/seeded_random.ts";
import { TcpRelay } from "../support/drivers/tcp_relay.ts";
import { assertHolds, holds, LongRunProxy, RandomCluster } from "./long_run.ts";
import { tokenAuth } from "./machinery_auth.ts";

/** Enough for each fault to occur several times. */
const REAL_SECONDS = 60;

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
